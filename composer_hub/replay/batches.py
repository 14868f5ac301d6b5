"""Batch lanes: many questions in one file, answered within a day at half the price.

In: the requests of lanes that do not wait for one another. Out: the same replies and failures as from a live client.
The endpoints are those of OpenAI: `/files` and `/batches`. Requests are gathered until no new one comes, then sent as
one batch. The ledger knows every batch before it is created, so a batch of a process that died is found again and its
answers are taken, never bought twice. A line that failed or expired costs nothing and is asked live.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from huggingface_hub.utils import httpx

from composer_hub.replay import answers
from composer_hub.replay.client import NO_KEY, ChatRequest, Client, Reply, blotter
from composer_hub.replay.ledger import Batch, Ledger
from composer_hub.replay.retries import Failure
from composer_hub.replay.teachers import Teacher

MAX_LINES = 2000
MAX_BYTES = 50 * 2**20
QUIET_S = 0.5  # without a new request, the gathered ones are sent
FIRST_POLL_S, MAX_POLL_S = 0.2, 60.0
MAX_TRIES = 6  # of an upload
FAILED = "batch_failed"  # nothing was billed: the question is asked live
_ENDED = frozenset(("completed", "failed", "expired", "cancelled"))

Outcomes = Mapping[int, Reply | Failure]  # by try


class _Refused(Exception):
    """The endpoint takes no batches, or not with this key."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.kind)
        self.failure = failure


class BatchClient:
    """The connection to one teacher that is asked in batches. Create it inside `connections`."""

    def __init__(
        self,
        teacher: Teacher,
        key: str,
        ledger: Ledger,
        *,
        on_note: Callable[[str], None] = lambda note: None,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self.teacher, self.blot = teacher, blotter([key])
        self._ledger, self._on_note, self._sleep = ledger, on_note, sleep
        self._live = Client(teacher.live(), key)
        self._http = httpx.AsyncClient(
            base_url=teacher.base_url,
            headers={"authorization": f"Bearer {key or NO_KEY}"},
            timeout=120,
            follow_redirects=False,
            verify=teacher.base_url.startswith("https:"),
        )
        self._waiting: list[tuple[ChatRequest, asyncio.Future[Reply | Failure]]] = []
        self._gathering: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for task in (*self._tasks, *([self._gathering] if self._gathering else [])):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._live.close()
        await self._http.aclose()

    async def ask(self, request: ChatRequest) -> Reply | Failure:
        """Return the outcome of one request, once its batch has ended."""
        if request.live:
            return await self._live.ask(request)
        future: asyncio.Future[Reply | Failure] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._gather())
        return await future

    async def recover(self) -> None:
        """Take the answers of batches that an earlier process has sent; those of living processes are left alone."""
        for batch in self._ledger.batches():
            if (batch.teacher, batch.base_url) != (self.teacher.name, self.teacher.base_url):
                continue
            states = self._ledger.try_states(batch.tries)
            lost = [number for number, state in states.items() if state == "ambiguous"]
            if "reserved" in states.values():
                continue
            if lost:
                self._on_note(
                    f"Teacher {self.teacher.name}: waiting for a batch of {len(lost)} questions sent earlier."
                )
                try:
                    self._take(lost, await self._outcomes_of(batch, lost))
                except _Refused:
                    continue  # Asking stops the teacher, and says why.
            self._ledger.forget_batch(batch.name)

    def _take(self, tries: Sequence[int], outcomes: Outcomes) -> None:
        for number in tries:
            outcome = outcomes.get(number, Failure(FAILED, 0))
            if isinstance(outcome, Failure):
                self._ledger.fail(number, outcome.kind, cost=outcome.cost)
                continue
            cost, source = answers.cost_of(outcome.response, self.teacher)
            counted = answers.usage_of(outcome.response)
            self._ledger.settle(
                number,
                outcome.body,
                cost=cost,
                cost_source=source,
                latency_s=outcome.latency_s,
                prompt_tokens=counted.prompt_tokens or 0,
                cached_tokens=counted.cached_tokens,
            )

    # ------------------------------------------------------------------------------------------------------ sending

    async def _gather(self) -> None:
        """Send what is waiting, once no new request comes or one batch is full."""
        while self._waiting:
            size = -1
            while size != len(self._waiting) < MAX_LINES:
                size = len(self._waiting)
                await asyncio.sleep(QUIET_S)
            taken, self._waiting = self._waiting[:MAX_LINES], self._waiting[MAX_LINES:]
            task = asyncio.create_task(self._answer(taken))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, taken: Sequence[tuple[ChatRequest, asyncio.Future[Reply | Failure]]]) -> None:
        start = time.perf_counter()
        try:
            outcomes = await self._sent([request for request, _ in taken])
        except _Refused as refused:
            outcomes = {request.try_id: refused.failure for request, _ in taken}
        except Exception as error:
            for _, future in taken:
                if not future.done():
                    future.set_exception(error)
            return
        for request, future in taken:
            outcome = outcomes.get(request.try_id, Failure(FAILED, 0))
            if isinstance(outcome, Reply):
                outcome = Reply(outcome.body, outcome.response, time.perf_counter() - start)
            if not future.done():
                future.set_result(outcome)

    async def _sent(self, requests: Sequence[ChatRequest]) -> Outcomes:
        """Send requests as batches of the allowed size, and wait for their ends."""
        outcomes: dict[int, Reply | Failure] = {}
        lines = [(request.try_id, self._line(request)) for request in requests]
        while lines:
            size = end = 0
            while end < len(lines) and (not end or size + len(lines[end][1]) <= MAX_BYTES):
                size, end = size + len(lines[end][1]), end + 1
            part, lines = lines[:end], lines[end:]
            tries = tuple(number for number, _ in part)
            batch = Batch(uuid.uuid4().hex, self.teacher.name, self.teacher.base_url, tries)
            self._ledger.note_batch(batch)
            outcomes |= await self._outcomes_of(await self._created(batch, b"".join(line for _, line in part)), tries)
        return outcomes

    def _line(self, request: ChatRequest) -> bytes:
        body = {
            "model": self.teacher.model_id,
            "messages": list(request.chat),
            "max_tokens": self.teacher.max_tokens,
            **({"tools": list(request.tools)} if request.tools else {}),
            **self.teacher.extra_body(request.lane),
        }
        row = {"custom_id": str(request.try_id), "method": "POST", "url": "/v1/chat/completions", "body": body}
        return json.dumps(row, ensure_ascii=True).encode() + b"\n"

    async def _created(self, batch: Batch, content: bytes) -> Batch:
        """Upload the file and create the batch; the ledger learns its id. A batch without one was never created."""
        upload = await self._request(
            "POST", "/files", data={"purpose": "batch"}, files={"file": (f"{batch.name}.jsonl", content)}
        )
        if upload is None or not upload.get("id"):
            return batch
        asked = {
            "input_file_id": upload["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": {"composer_hub": batch.name},
        }
        made = await self._request("POST", "/batches", tries=1, json=asked)
        batch = batch.with_id(str((made or {}).get("id") or await self._found(batch.name)))
        self._ledger.note_batch(batch)
        if batch.batch_id:
            self._on_note(
                f"Teacher {self.teacher.name}: a batch of {len(batch.tries)} questions was sent ({batch.batch_id}). "
                "The run may be stopped with Ctrl-C twice; the same command takes its answers later."
            )
        return batch

    async def _found(self, name: str) -> str:
        """Return the id of the batch that was created under a name, "" if there is none."""
        after = ""
        while True:
            page = await self._request("GET", "/batches", params={"limit": 100, **({"after": after} if after else {})})
            rows = [row for row in (page or {}).get("data") or () if isinstance(row, Mapping)]
            for row in rows:
                if (row.get("metadata") or {}).get("composer_hub") == name:
                    return str(row["id"])
            if not rows or not (page or {}).get("has_more"):
                return ""
            after = str(rows[-1].get("id"))

    # ---------------------------------------------------------------------------------------------------- answers

    async def _outcomes_of(self, batch: Batch, tries: Collection[int]) -> Outcomes:
        """Wait until a batch has ended; return the outcome of each line that it has answered."""
        batch_id = batch.batch_id or await self._found(batch.name)
        if not batch_id:
            return dict.fromkeys(tries, Failure(FAILED, 0, detail="the batch was never created"))
        wait = FIRST_POLL_S
        while True:
            state = await self._request("GET", f"/batches/{batch_id}", tries=0)
            if state is None:
                # Whether it was billed is unknown.
                return dict.fromkeys(tries, Failure("batch_lost", None, detail=f"the endpoint knows no {batch_id}"))
            if state.get("status") in _ENDED:
                break
            await self._sleep(wait)
            wait = min(wait * 1.5, MAX_POLL_S)
        outcomes: dict[int, Reply | Failure] = {}
        for name in ("error_file_id", "output_file_id"):
            if state.get(name):
                content = await self._content(str(state[name]))
                outcomes |= {number: one for number, one in map(self._read, content.splitlines()) if number in tries}
        return outcomes

    def _read(self, line: bytes) -> tuple[int, Reply | Failure]:
        """Return the try and the outcome of one line; a line that cannot be read belongs to none."""
        try:
            row = answers.parse(self.blot(line))
            number, response = int(row["custom_id"]), row.get("response") or {}
        except (ValueError, KeyError, TypeError, AttributeError):
            return 0, Failure(FAILED, 0)
        body = response.get("body")
        if response.get("status_code") != 200 or not isinstance(body, Mapping):
            return number, Failure(FAILED, 0, detail=str(row.get("error") or response.get("status_code") or ""))
        failure = answers.failure_in(body, self.teacher, now=time.time())
        return number, failure or Reply(json.dumps(body).encode(), body, 0.0)

    async def _content(self, file_id: str) -> bytes:
        while True:
            try:
                response = await self._http.get(f"/files/{file_id}/content")
                if response.status_code == 200:
                    return bytes(response.content)
            except httpx.TransportError:
                pass
            await self._sleep(1.0)

    async def _request(self, method: str, path: str, *, tries: int = MAX_TRIES, **parts: Any) -> dict[str, Any] | None:
        """Send a request that costs nothing; None if it failed for good. `tries` 0: until the server answers."""
        number = 0
        while True:
            number += 1
            try:
                response = await self._http.request(method, path, **parts)
            except httpx.TransportError:
                response = None
            if response is not None and response.status_code == 200:
                content = answers.parse(self.blot(response.content))
                return content if isinstance(content, dict) else None
            if response is not None and response.status_code in (404, 405, 501) and method == "POST":
                raise _Refused(Failure("no_batches", 0))
            if response is not None and response.status_code in (401, 403):
                raise _Refused(Failure("unauthorized", 0))
            given_up = response is not None and 400 <= response.status_code < 500 and response.status_code != 429
            if given_up or number == tries:
                return None
            await self._sleep(min(0.2 * 2**number, MAX_POLL_S))
