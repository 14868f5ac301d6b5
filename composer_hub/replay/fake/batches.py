"""Batches of the embedded teachers: `/v1/files` and `/v1/batches` in the shape of OpenAI, at half the price.

A batch is worked on when it is first looked at after `delay_s`. Queued faults: `expire` answers only half of the lines,
`lose` drops the answer to the creation; the rates of the server's faults apply to single lines.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from composer_hub.replay.fake.answers import Dropped, refuse

Answer = Callable[[Mapping[str, Any]], Awaitable[tuple[int, Any]]]
"""The body of a line -> status and body of its answer; it is billed at the price of a batch."""


@dataclass(slots=True)
class _Batch:
    name: str
    lines: list[bytes]
    metadata: Mapping[str, Any]
    ready: float
    expires: bool = False
    status: str = "in_progress"
    files: dict[str, str] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        return {"id": self.name, "object": "batch", "status": self.status, "metadata": self.metadata, **self.files}


class BatchDesk:
    """The files and batches of one server."""

    def __init__(self, answer: Answer, fault: Callable[[], str], *, delay_s: float = 0.0) -> None:
        self.answer, self.fault, self.delay_s = answer, fault, delay_s
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, _Batch] = {}

    def routes(self) -> list[Route]:
        return [
            Route("/v1/files", self._upload, methods=["POST"]),
            Route("/v1/files/{name}/content", self._content),
            Route("/v1/batches", self._create, methods=["POST"]),
            Route("/v1/batches", self._list),
            Route("/v1/batches/{name}", self._look),
        ]

    async def _upload(self, request: Request) -> Response:
        boundary = request.headers["content-type"].partition("boundary=")[2].strip('"').encode()
        parts = (await request.body()).split(b"--" + boundary)
        file = next(part for part in parts if b"filename=" in part.partition(b"\r\n\r\n")[0])
        return JSONResponse({"id": self._store(file.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")), "object": "file"})

    async def _content(self, request: Request) -> Response:
        content = self.files.get(request.path_params["name"])
        return refuse(404, {}, "no such file") if content is None else Response(content)

    async def _create(self, request: Request) -> Response:
        asked = orjson.loads(await request.body())
        fault = self.fault()
        name = f"batch_{len(self.batches):06d}"
        lines = self.files[asked["input_file_id"]].splitlines()
        batch = _Batch(name, lines, asked.get("metadata") or {}, time.monotonic() + self.delay_s, fault == "expire")
        self.batches[name] = batch
        return Dropped() if fault == "lose" else JSONResponse(batch.row())

    async def _list(self, request: Request) -> Response:
        return JSONResponse({"data": [batch.row() for batch in self.batches.values()], "has_more": False})

    async def _look(self, request: Request) -> Response:
        batch = self.batches.get(request.path_params["name"])
        if batch is None:
            return refuse(404, {}, "no such batch")
        if batch.status == "in_progress" and time.monotonic() >= batch.ready:
            batch.status = "finalizing"
            await self._work(batch)
        return JSONResponse(batch.row())

    async def _work(self, batch: _Batch) -> None:
        done: dict[str, list[bytes]] = {"output_file_id": [], "error_file_id": []}
        lines = batch.lines[: len(batch.lines) // 2] if batch.expires else batch.lines
        for line in lines:
            row = orjson.loads(line)
            status, body = await self.answer(row["body"])
            response = {"status_code": status, "request_id": "", "body": body}
            answered = orjson.dumps({"custom_id": row["custom_id"], "response": response, "error": None})
            done["output_file_id" if status == 200 else "error_file_id"].append(answered)
        batch.files = {kind: self._store(b"\n".join(rows) + b"\n") for kind, rows in done.items() if rows}
        batch.status = "expired" if batch.expires else "completed"

    def _store(self, content: bytes) -> str:
        name = f"file-{len(self.files):06d}"
        self.files[name] = content
        return name
