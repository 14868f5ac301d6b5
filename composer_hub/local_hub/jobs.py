"""Jobs over HTTP: start, list, inspect, cancel, and their logs as a stream of events.

Jobs need `--allow-local-jobs`, because a job is any command, run with the rights of the person who serves.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response, StreamingResponse

from composer_hub.local_hub import buckets, sessions, webpage
from composer_hub.local_hub.calls import ApiError, Call, Route, text_field
from composer_hub.local_hub.elements import esc
from composer_hub.local_hub.jobrunner import SERVER_STOPPED, Runner, RunningJob
from composer_hub.local_hub.mounts import MAX_VOLUMES, Volume, read_volume
from composer_hub.local_hub.repos import check_gate
from composer_hub.local_hub.store import Store

STAGES = ("SCHEDULING", "RUNNING", "COMPLETED", "CANCELED", "ERROR", "DELETED")
DEFAULT_TIMEOUT = 30 * 60
"""A job without a timeout ends after half an hour, as on the Hub."""
MAX_TIMEOUT = 30 * 24 * 3600
KEEP_ALIVE_SECONDS = 30.0
_POLL_SECONDS = 0.15
_PAGE = 100
_LOG_LINES = 500
_ENDED = ("COMPLETED", "CANCELED", "ERROR", "DELETED")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,100}")
_NOT_HERE = ("expose", "ssh", "network")

SCHEMA = """
create table if not exists jobs(
    number integer primary key autoincrement, id text not null unique, namespace text not null, author text not null,
    stage text not null, message text not null default '', labels text not null, spec text not null,
    created_at text not null, started_at text, finished_at text);
create index if not exists jobs_by_namespace on jobs(namespace, number);
"""
_COLUMNS = "id, namespace, author, stage, message, labels, spec, created_at, started_at, finished_at"


def note_ended(store: Store) -> None:
    """Note that the jobs of an earlier server have ended with it, because each ends with its supervisor."""
    with store.write() as db:
        db.execute(
            "update jobs set stage='ERROR', message=?, finished_at=? where stage in ('SCHEDULING', 'RUNNING')",
            (SERVER_STOPPED, store.now()),
        )


def runner_of(call: Call) -> Runner:
    """Return the runner of this server, created for the first job."""
    if "jobs" not in call.hub.extra:
        call.hub.extra["jobs"] = Runner(call.hub)
    return call.hub.extra["jobs"]


# ---------------------------------------------------------------------------------------------------------- requests


async def run(call: Call) -> Response:
    """Start a job."""
    namespace, author = _namespace(call, write=True)
    _check_allowed(call)
    body = await call.json_body()
    return await _start(call, namespace, author, read_spec(body), _texts(body, "secrets"))


async def list_jobs(call: Call) -> Response:
    """List a page of jobs, newest first, filtered by stages and labels."""
    namespace, _ = _namespace(call)
    where, values = ["namespace=?"], [namespace]
    if stages := call.query.getlist("stage"):
        where.append(f"stage in ({','.join('?' * len(stages))})")
        values += [stage.upper() for stage in stages]
    for label in call.query.getlist("label"):
        key, _, value = label.partition("=")
        where.append("exists (select 1 from json_each(labels) where key=? and value=?)")
        values += [key, value]
    if (cursor := call.query.get("cursor", "")).isdecimal():
        where.append("number<cast(? as integer)")
        values.append(cursor)
    rows = call.store.read().execute(
        f"select number, {_COLUMNS} from jobs where {' and '.join(where)} order by number desc limit ?",
        (*values, _PAGE + 1),
    )
    found = rows.fetchall()
    headers = {}
    if len(found) > _PAGE:
        kept = [(key, value) for key, value in call.query.multi_items() if key != "cursor"]
        query = urlencode([*kept, ("cursor", found[_PAGE - 1][0])])
        headers["Link"] = f'<{call.url(f"/api/jobs/{namespace}")}?{query}>; rel="next"'
    return call.json([_shown(call, _job(row[1:])) for row in found[:_PAGE]], headers=headers)


async def inspect(call: Call) -> Response:
    """Answer the present state of one job."""
    _namespace(call)
    return call.json(_shown(call, _find(call)))


async def show_page(call: Call) -> Response:
    """Show people the state of a job and the end of its log."""
    _namespace(call)
    job, path = _shown(call, _find(call)), runner_of(call).log_path(call.args["id"])
    lines = await call.in_thread(_last_lines, path, _LOG_LINES) if path.is_file() else ([], 0)
    log = "\n".join(str(json.loads(line).get("data", "")) for line in lines[0])
    values = {
        "state": job["status"]["stage"],
        "message": job["status"]["message"] or "",
        "command": " ".join(map(str, [*(job["command"] or []), *(job["arguments"] or [])])),
        "created": job["createdAt"],
    }
    facts = webpage.table([], [[name, esc(str(value))] for name, value in values.items()])
    return webpage.page(f"Job {job['id']}", f"{facts}<h2>Log</h2><pre>{esc(log)}</pre>", user=sessions.name_of(call))


async def cancel(call: Call) -> Response:
    """Cancel a job, unless it has ended."""
    _namespace(call, write=True)
    _find(call)
    await runner_of(call).cancel(call.args["id"])
    return call.json(_shown(call, _find(call)))


async def show_hardware(call: Call) -> Response:
    """List this machine, which costs nothing."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    machine = {
        "name": "local",
        "prettyName": "This machine",
        "cpu": f"{os.cpu_count() or 1} vCPU",
        "ram": f"{memory / 1e9:.0f} GB",
        "accelerator": None,
        "unitCostMicroUSD": 0,
        "unitCostUSD": 0.0,
        "unitLabel": "minute",
    }
    return call.json([machine])


async def show_logs(call: Call) -> Response:
    """Stream the log, present and new lines, until the job ends."""
    _namespace(call)
    job = _find(call)
    tail = call.query.get("tail")
    if tail is not None and not (tail.isascii() and tail.isdigit() and len(tail) < 10):
        raise ApiError(400, f"tail={tail[:40]!r} is not a number of lines.", "BadRequest")
    lines = _events(call, job, runner_of(call).log_path(job["id"]), None if tail is None else int(tail))
    return StreamingResponse(lines, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


# ---------------------------------------------------------------------------------------------------------- starting


def read_spec(body: Mapping[str, Any]) -> dict[str, Any]:
    """Check the request for a job; the result holds only the names of its secrets."""
    for key in _NOT_HERE:
        if body.get(key):
            raise ApiError(501, f"The embedded Hub does not offer {key!r} for jobs: a local job is a plain process.")
    command = [*_words(body, "command"), *_words(body, "arguments")]
    if not command or not command[0]:
        raise ApiError(400, "A job needs a `command`: a list of texts, the program first.", "BadRequest")
    raw_volumes = body.get("volumes") or []
    if not isinstance(raw_volumes, list) or len(raw_volumes) > MAX_VOLUMES:
        raise ApiError(400, f"`volumes` must be a list of at most {MAX_VOLUMES} objects.", "BadRequest")
    volumes = [read_volume(raw) for raw in raw_volumes]
    if len({volume["mountPath"] for volume in volumes}) != len(volumes):
        raise ApiError(400, "Two volumes have the same `mountPath`. Give each its own.", "BadRequest")
    return {
        "command": _words(body, "command"),
        "arguments": _words(body, "arguments"),
        "environment": _texts(body, "environment"),
        "secrets": sorted(_texts(body, "secrets")),
        "flavor": text_field(body, "flavor", "cpu-basic"),
        "dockerImage": body.get("dockerImage"),
        "spaceId": body.get("spaceId"),
        "timeoutSeconds": _whole(body, "timeoutSeconds", DEFAULT_TIMEOUT, MAX_TIMEOUT),
        "attempts": _whole(body, "attempts", 1, 10),
        "labels": _labels(body),
        "volumes": volumes,
    }


async def _start(call: Call, namespace: str, author: str, spec: dict[str, Any], values: Mapping[str, str]) -> Response:
    runner = runner_of(call)
    volumes = [_volume(call, raw) for raw in spec["volumes"]]
    job_id = secrets.token_hex(12)
    row = (job_id, namespace, author, json.dumps(spec["labels"]), json.dumps(spec), call.store.now())

    def insert() -> None:
        with call.store.write() as db:
            db.execute(
                "insert into jobs(id, namespace, author, labels, spec, created_at, stage) "
                "values(?,?,?,?,?,?,'SCHEDULING')",
                row,
            )

    await call.write(insert)
    runner.start(RunningJob(job_id, spec, values, volumes))
    call.args["id"] = job_id
    return call.json(_shown(call, _find(call)))


def _volume(call: Call, raw: Mapping[str, Any]) -> Volume:
    """Return a volume with its source, if the caller may read it."""
    is_writable = not raw["readOnly"]
    folder, mount_path = raw["path"] or "", raw["mountPath"]
    if raw["type"] == "bucket":
        buckets.check_offered(call.hub)
        bucket = buckets.find(call, raw["source"], write=is_writable)
        return Volume(bucket, mount_path, folder, is_writable=is_writable)
    repo = call.repo(kind=raw["type"], name=raw["source"])
    check_gate(call, repo)
    return Volume(repo, mount_path, folder, revision=call.store.resolve(repo, raw["revision"] or "main"))


def _check_allowed(call: Call) -> None:
    if not call.hub.allow_local_jobs:
        raise ApiError(
            403,
            "This embedded Hub does not run jobs: a job is any command, run on this machine. "
            "Restart it with --allow-local-jobs if you trust everyone who has a token.",
        )


def _namespace(call: Call, *, write: bool = False) -> tuple[str, str]:
    """Return the namespace of the path and the caller, who must belong to it."""
    user, namespace = call.need_user(write=write), call.args["ns"]
    if not (user.may_create_in(namespace) if write else user.may_read(namespace)):
        raise ApiError(403, f"Forbidden: you have no rights to the jobs of {namespace[:100]!r}.")
    return namespace, user.name


def _words(body: Mapping[str, Any], key: str) -> list[str]:
    value = body.get(key) or []
    if not isinstance(value, list) or not all(isinstance(word, str) and _fits(word) for word in value):
        raise ApiError(400, f"`{key}` must be a list of texts.", "BadRequest")
    return value


def _fits(text: str) -> bool:
    """Return True if a process can be given this text."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _texts(body: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return environment variables; clients also send numbers and booleans."""
    value = body.get(key) or {}
    if not isinstance(value, dict) or not all(_VARIABLE.fullmatch(name) for name in value):
        raise ApiError(400, f"`{key}` must map names of environment variables to texts.", "BadRequest")
    texts = {name: "" if text is None else str(text) for name, text in value.items()}
    if not all(map(_fits, texts.values())):
        raise ApiError(400, f"A value of `{key}` holds a character that no environment can hold.", "BadRequest")
    return texts


def _whole(body: Mapping[str, Any], key: str, default: int, most: int) -> int:
    value = body.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ApiError(400, f"`{key}` must be a whole number from 1 to {most}.", "BadRequest")
    return value


def _labels(body: Mapping[str, Any]) -> dict[str, str]:
    labels = body.get("labels") or {}
    is_map = isinstance(labels, dict) and len(labels) <= 100
    if not is_map or not all(
        _LABEL.fullmatch(key) and isinstance(value, str) and (value == "" or _LABEL.fullmatch(value))
        for key, value in labels.items()
    ):
        raise ApiError(400, "Labels map words to words of up to 100 letters, digits, '-', '_' and '.'.", "BadRequest")
    return labels


# ---------------------------------------------------------------------------------------------------------- views


def _job(row: tuple[Any, ...]) -> dict[str, Any]:
    job = dict(zip(_COLUMNS.split(", "), row, strict=True))
    return job | {"labels": json.loads(job["labels"]), "spec": json.loads(job["spec"])}


def _find(call: Call) -> dict[str, Any]:
    row = call.store.read().execute(
        f"select {_COLUMNS} from jobs where id=? and namespace=?", (call.args["id"], call.args["ns"])
    )
    if (found := row.fetchone()) is None:
        raise ApiError(404, f"{call.args['ns'][:100]} has no job {call.args['id'][:100]!r}. List its jobs first.")
    return _job(found)


def _shown(call: Call, job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job as clients read it, with only the names of its secrets."""
    spec = job["spec"]
    is_user = job["namespace"] in call.hub.accounts.users
    return {
        "id": job["id"],
        "createdAt": job["created_at"],
        "startedAt": job["started_at"],
        "finishedAt": job["finished_at"],
        **{key: spec[key] for key in ("dockerImage", "spaceId", "command", "arguments", "environment")},
        "secrets": dict.fromkeys(spec["secrets"]),
        "flavor": "local",
        "labels": job["labels"] or None,
        "volumes": spec["volumes"] or None,
        "timeoutSeconds": spec["timeoutSeconds"],
        "retry": spec["attempts"] - 1,
        "status": {"stage": job["stage"], "message": job["message"] or None},
        "durations": _durations(job, call.store.now()),
        "owner": {"id": _id(job["namespace"]), "name": job["namespace"], "type": "user" if is_user else "org"},
        "initiator": {"type": "user", "id": _id(job["author"]), "name": job["author"]},
    }


def _durations(job: Mapping[str, Any], now: str) -> dict[str, int | None]:
    end = job["finished_at"] or now
    return {
        "schedulingSecs": _between(job["created_at"], job["started_at"]),
        "runningSecs": _between(job["started_at"], end),
        "totalSecs": _between(job["created_at"], end),
    }


def _between(start: str | None, end: str | None) -> int | None:
    if start is None or end is None:
        return None
    return max(0, int((_moment(end) - _moment(start)).total_seconds()))


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def _id(name: str) -> str:
    return name.encode().hex()[:24].ljust(24, "0")


# ---------------------------------------------------------------------------------------------------------- logs


async def _events(call: Call, job: Mapping[str, Any], path: Path, tail: int | None) -> AsyncIterator[bytes]:
    """Yield the lines of a log as events; a replay yields the same ones, so that clients can resume."""
    if tail is None:
        first = {"data": f"===== Job started at {job['created_at']} =====", "timestamp": job["created_at"]}
        yield _event(json.dumps(first).encode())
    at, quiet = 0, 0.0
    if tail is not None:
        lines, at = await call.in_thread(_last_lines, path, tail)
        yield b"".join(map(_event, lines))
    while True:
        # Read the stage first, so that the file is complete if the job has ended.
        is_over = job["stage"] in _ENDED and job["id"] not in runner_of(call).running
        lines, at = await call.in_thread(_new_lines, path, at)
        yield b"".join(map(_event, lines))
        if is_over and not lines:
            return
        quiet = 0.0 if lines else quiet + _POLL_SECONDS
        if quiet >= KEEP_ALIVE_SECONDS:
            quiet = 0.0
            yield b": keep-alive\n\n"
        if not lines:
            await asyncio.sleep(_POLL_SECONDS)
            job = _find(call)


def _event(line: bytes) -> bytes:
    return b"data: " + line + b"\n\n"


def _new_lines(path: Path, at: int) -> tuple[list[bytes], int]:
    """Return complete lines from an offset, up to about a megabyte, and the offset after them."""
    try:
        with open(path, "rb") as file:
            file.seek(at)
            data = file.read(1 << 20)
    except FileNotFoundError:
        return [], at
    end = data.rfind(b"\n") + 1
    return data[:end].splitlines(), at + end


def _last_lines(path: Path, count: int) -> tuple[list[bytes], int]:
    """Return the last complete lines and the offset after them."""
    try:
        with open(path, "rb") as file:
            lines = collections.deque(file, maxlen=count + 1)
            at = file.tell()
    except FileNotFoundError:
        return [], 0
    rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
    return [line.rstrip(b"\n") for line in lines][-count:] if count else [], at - len(rest)


_ALL = "/api/jobs/{ns}"
_ONE = "/api/jobs/{ns}/{id}"

ROUTES = (
    Route("GET", "/jobs/{ns}/{id}", show_page, on_error=sessions.failed),
    Route("GET", "/api/jobs/hardware", show_hardware),
    Route("GET", _ALL, list_jobs),
    Route("POST", _ALL, run),
    Route("GET", _ONE, inspect),
    Route("POST", f"{_ONE}/cancel", cancel),
    Route("GET", f"{_ONE}/logs", show_logs),
)
