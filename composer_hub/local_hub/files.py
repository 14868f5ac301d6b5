"""The content of a revision: trees, single paths, bytes, and the upload method for new files."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from composer_hub.local_hub.calls import ApiError, Call, Route
from composer_hub.local_hub.repos import check_gate, lfs_details
from composer_hub.local_hub.store import Repo
from composer_hub.local_hub.trees import Folder, TreeEntry

CHUNK = 1 << 20
REGULAR_LIMIT = 10 << 20
"""A larger file goes up as LFS, whatever its name."""
_PAGE, _EXPANDED_PAGE = 1000, 50
_MAX_PATHS = 2000


async def show_tree(call: Call) -> Response:
    """List a folder of a revision, page by page."""
    repo = call.repo()
    oid = call.store.resolve(repo, call.args["rev"])
    folder = call.args.get("path", "").strip("/")
    expand = call.flag("expand")
    items = await call.in_thread(call.store.listing, repo, oid, folder, recursive=call.flag("recursive"))
    if folder and not items:
        raise entry_not_found(f'{folder} does not exist on "{call.args["rev"]}"', oid)
    cursor = call.query.get("cursor", "")
    paths = [path for path in items if path > cursor] if cursor else list(items)
    size = min(call.number("limit", _PAGE) or _PAGE, _EXPANDED_PAGE if expand else _PAGE)
    page = paths[:size]
    headers = {"X-Repo-Commit": oid}
    if len(paths) > size:
        headers["Link"] = f'<{_with_cursor(call, page[-1])}>; rel="next"'
    last = await call.in_thread(last_commits, call, repo, oid, page) if expand else {}
    return call.json([_item(path, items[path], last.get(path)) for path in page], headers=headers)


async def show_paths(call: Call) -> Response:
    """Describe the asked paths that exist; the others are left out, as on the Hub."""
    repo = call.repo()
    form = await _form(call)
    oid = call.store.resolve(repo, call.args["rev"])
    tree = await call.in_thread(call.store.tree, repo, oid)
    wanted = [path.strip("/") for path in form["paths"]]
    found: dict[str, TreeEntry | Folder] = {path: tree[path] for path in wanted if path in tree}
    if missing := [path for path in wanted if path not in tree]:
        everything = await call.in_thread(call.store.listing, repo, oid, "", recursive=True)
        found |= {path: everything[path] for path in missing if path in everything}
    expand = form["expand"]
    last = await call.in_thread(last_commits, call, repo, oid, list(found)) if expand else {}
    return call.json([_item(path, item, last.get(path)) for path, item in found.items()])


async def send_file(call: Call) -> Response:
    """Send a file of a revision, whole or a range of it."""
    repo = call.repo()
    check_gate(call, repo)
    oid = call.store.resolve(repo, call.args["rev"])
    tree = call.store.tree(repo, oid)
    path = call.args["path"]
    entry = tree.get(path)
    if entry is None:
        raise entry_not_found(f"Entry not found: {path[:300]}", oid)
    headers = {
        "X-Repo-Commit": oid,
        "ETag": f'"{entry.content_id}"',
        "Content-Disposition": f"inline; filename*=UTF-8''{quote(path.rpartition('/')[2])}",
        # A hostile file must stay a file, whatever a browser thinks it is.
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    if entry.sha256:
        headers |= {"X-Linked-Etag": f'"{entry.sha256}"', "X-Linked-Size": str(entry.size)}
    return send_content(call.request, call.store.content(entry), entry.size, headers)


async def plan_upload(call: Call) -> Response:
    """Say for each file which way it goes up, whether it is ignored, and what the branch holds now."""
    repo = call.repo(write="create_pr" not in call.query and not call.args["rev"].startswith("refs/pr/"))
    call.need_user(write=True)
    body = await call.json_body()
    oid = call.store.resolve(repo, call.args["rev"])
    tree = call.store.tree(repo, oid)
    ignored = body.get("gitIgnore")
    if not isinstance(ignored, str):
        ignored = (call.store.read_bytes(repo, oid, ".gitignore") or b"").decode("utf-8", "replace")
    attributes = (call.store.read_bytes(repo, oid, ".gitattributes") or b"").decode("utf-8", "replace")
    files = body.get("files")
    if not isinstance(files, list) or not all(
        isinstance(file, dict) and isinstance(file.get("path"), str) for file in files
    ):
        raise ApiError(400, "`files` must be a list of objects with `path` and `size`.", "BadRequest")
    return call.json({"files": [_plan(file, tree, ignored, attributes) for file in files], "commitOid": oid})


def last_commits(call: Call, repo: Repo, oid: str, paths: Iterable[str]) -> dict[str, dict[str, str]]:
    """Find for each file or folder the newest commit that touched it."""
    missing, found = set(paths), {}
    for commit, changes in call.store.log_with_changes(repo, oid):
        for path in [path for path in missing if path in changes or _touches(changes, path)]:
            found[path] = {"id": commit.oid, "title": commit.title, "date": commit.created_at}
            missing.discard(path)
        if not missing:
            break
    return found


def entry_not_found(message: str, oid: str) -> ApiError:
    """Return a 404 that names the commit: clients remember by it that the file is not there."""
    return ApiError(404, message, "EntryNotFound", headers={"X-Repo-Commit": oid})


def send_content(request: Request, content: bytes | Path, size: int, headers: Mapping[str, str]) -> Response:
    """Answer with bytes or a file, whole or the range that the request asks for."""
    span = parse_range(request.headers.get("range", ""), size)
    start, stop = span or (0, size)
    headers = {**headers, "Accept-Ranges": "bytes", "Content-Length": str(stop - start)}
    if span:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    status = 206 if span else 200
    if isinstance(content, bytes):
        return Response(content[start:stop], status, headers, "application/octet-stream")
    if not content.is_file() or content.stat().st_size != size:
        raise ApiError(500, "The bytes of this file are missing from the folder of the embedded Hub. Upload it again.")
    return FilePart(content, start, stop, status, headers)


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Return the asked half-open range, or None for the whole file; a range outside of it is a 416.

    What is not one plain `bytes=` range is ignored, as RFC 9110 allows.
    """
    unit, _, text = header.partition("=")
    first, dash, last = text.strip().partition("-")
    # Python refuses to read thousands of digits; no file is longer than nineteen of them say.
    are_numbers = all(not part or (part.isdecimal() and len(part) < 20) for part in (first, last))
    if unit.strip().lower() != "bytes" or not dash or not are_numbers:
        return None
    if not first and not last:
        return None
    start = int(first) if first else max(size - int(last), 0)
    stop = min(int(last) + 1, size) if first and last else size
    if first and last and int(last) < start:
        return None
    if start >= size or (not first and int(last) == 0):
        raise ApiError(416, "The requested range is outside of the file.", headers={"Content-Range": f"bytes */{size}"})
    return start, stop


class FilePart(Response):
    """A part of a file, read a chunk at a time: memory does not grow with the file."""

    def __init__(self, path: Path, start: int, stop: int, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(None, status, headers, "application/octet-stream")
        self.path, self.start, self.stop = path, start, stop
        del self.headers["content-length"]
        self.headers["content-length"] = str(stop - start)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.concurrency import run_in_threadpool

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        left = 0 if scope["method"] == "HEAD" else self.stop - self.start
        if left:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(self.start)
                while left and (chunk := await run_in_threadpool(file.read, min(CHUNK, left))):
                    left -= len(chunk)
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _has_path(file: Any) -> bool:
    return isinstance(file, dict) and isinstance(file.get("path"), str)


def _plan(file: Mapping[str, Any], tree: Mapping[str, TreeEntry], ignored: str, attributes: str) -> dict[str, Any]:
    path, size = file["path"], file.get("size")
    is_lfs = (isinstance(size, int) and size > REGULAR_LIMIT) or _matches(path, _lfs_patterns(attributes))
    plan = {
        "path": path,
        "uploadMode": "lfs" if is_lfs else "regular",
        "shouldIgnore": _matches(path, _ignore_patterns(ignored)),
    }
    return plan | ({"oid": tree[path].content_id} if path in tree else {})


@functools.lru_cache(maxsize=64)
def _lfs_patterns(attributes: str) -> tuple[str, ...]:
    lines = [line.split() for line in attributes.splitlines() if "filter=lfs" in line and not line.startswith("#")]
    return tuple(words[0] for words in lines if words)


@functools.lru_cache(maxsize=64)
def _ignore_patterns(text: str) -> tuple[str, ...]:
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def _matches(path: str, patterns: Iterable[str]) -> bool:
    """Say whether git's simple patterns name this path: by its name, as a whole, or a folder above it."""
    name = path.rpartition("/")[2]
    for pattern in patterns:
        rooted = pattern.strip("/")
        if fnmatch.fnmatchcase(path, rooted) or path.startswith(rooted + "/"):
            return True
        if "/" not in rooted and (fnmatch.fnmatchcase(name, rooted) or f"/{rooted}/" in f"/{path}"[: -len(name)]):
            return True
    return False


def _item(path: str, item: TreeEntry | Folder, last: Mapping[str, str] | None) -> dict[str, Any]:
    details: dict[str, Any]
    if isinstance(item, Folder):
        details = {"type": "directory", "oid": item.oid, "size": 0, "path": path}
    else:
        details = {"type": "file", "oid": item.oid, "size": item.size, "path": path}
        if item.sha256:
            details["lfs"] = lfs_details(item, "oid")
    if last is not None:
        details["lastCommit"] = last
        if isinstance(item, TreeEntry):
            details["securityFileStatus"] = None
    return details


def _touches(changes: Mapping[str, Any], folder: str) -> bool:
    prefix = folder + "/"
    return any(path.startswith(prefix) for path in changes)


async def _form(call: Call) -> dict[str, Any]:
    """Read `paths` and `expand` from a form (as clients send them) or from JSON."""
    if "json" in call.request.headers.get("content-type", ""):
        body = await call.json_body()
        paths, expand = body.get("paths", []), str(body.get("expand", ""))
    else:
        fields = parse_qs((await call.body()).decode("utf-8", "replace"), keep_blank_values=True)
        paths, expand = fields.get("paths", []), (fields.get("expand") or [""])[0]
    if not isinstance(paths, list) or len(paths) > _MAX_PATHS or not all(isinstance(path, str) for path in paths):
        raise ApiError(400, f"`paths` must be a list of at most {_MAX_PATHS} texts.", "BadRequest")
    return {"paths": paths, "expand": expand.lower() in ("true", "1")}


def _with_cursor(call: Call, cursor: str) -> str:
    kept = [f"{key}={quote(value)}" for key, value in call.query.multi_items() if key != "cursor"]
    path = call.request.scope["raw_path"].decode("latin-1")
    return call.url(path) + "?" + "&".join([*kept, f"cursor={quote(cursor, safe='')}"])


ROUTES = (
    Route("GET", "/api/{kinds}/{ns}/{name}/tree/{rev}", show_tree),
    Route("GET", "/api/{kinds}/{ns}/{name}/tree/{rev}/{path...}", show_tree),
    Route("POST", "/api/{kinds}/{ns}/{name}/paths-info/{rev}", show_paths),
    Route("POST", "/api/{kinds}/{ns}/{name}/preupload/{rev}", plan_upload),
    Route("GET", "/{kinds}/{ns}/{name}/resolve/{rev}/{path...}", send_file),
    Route("GET", "/{ns}/{name}/resolve/{rev}/{path...}", send_file),
)
