"""The content of a revision: trees, single paths, bytes, and the upload method for new files."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.concurrency import iterate_in_threadpool
from starlette.responses import Response, StreamingResponse

from composer_hub.local_hub.calls import JSON_LIMIT, PUBLIC_LIMIT, ApiError, Call, Route
from composer_hub.local_hub.contents import Content
from composer_hub.local_hub.repos import check_gate, lfs_details
from composer_hub.local_hub.store import Commit, Repo
from composer_hub.local_hub.trees import Folder, TreeEntry, pointer
from composer_hub.local_hub.xorbs import Malformed

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
    last = await call.in_thread(call.store.last_commits, repo, oid) if expand else None
    shown = {path: items[path] for path in page}
    return call.json(await call.in_thread(_items, call, repo, shown, last), headers=headers)


async def show_paths(call: Call) -> Response:
    """Describe the asked paths that exist; the others are left out, as on the Hub."""
    repo = call.repo()
    oid = call.store.resolve(repo, call.args["rev"])  # before the body, which can be read only once
    form = await _form(call)
    tree = await call.in_thread(call.store.tree, repo, oid)
    wanted = [path.strip("/") for path in form["paths"]]
    found: dict[str, TreeEntry | Folder] = {path: tree[path] for path in wanted if path in tree}
    if missing := [path for path in wanted if path not in tree]:
        everything = await call.in_thread(call.store.listing, repo, oid, "", recursive=True)
        found |= {path: everything[path] for path in missing if path in everything}
    expand = form["expand"]
    last = await call.in_thread(call.store.last_commits, repo, oid) if expand else None
    return call.json(await call.in_thread(_items, call, repo, found, last))


async def send_raw(call: Call) -> Response:
    """Send a file as git has it: in place of a large file, the text that points to it."""
    repo, entry, headers = await call.in_thread(_found, call)
    content = pointer(entry.sha256, entry.size) if entry.sha256 else call.store.content(repo, entry)
    headers |= {"ETag": f'"{entry.oid}"'}
    return await send_content(call, content, None if entry.sha256 else entry.size, headers)


async def send_file(call: Call) -> Response:
    """Send a file of a revision, whole or a range of it."""
    repo, entry, headers = await call.in_thread(_found, call)
    if entry.sha256:
        headers |= {"X-Linked-Etag": f'"{entry.sha256}"', "X-Linked-Size": str(entry.size)}
    content = call.store.content(repo, entry)
    if call.hub.with_xet and (file := call.store.chunked(repo, entry)):
        token = f"/api/{repo.kind}s/{repo.name}/xet-read-token/{headers['X-Repo-Commit']}"
        headers |= {"X-Xet-Hash": file.hash, "X-Xet-Refresh-Route": call.url(token)}
    return await send_content(call, content, entry.size, headers)


def _found(call: Call) -> tuple[Repo, TreeEntry, dict[str, str]]:
    """Return the repository and the entry of the path, and the headers of every answer with its bytes."""
    repo = call.repo()
    check_gate(call, repo)
    oid = call.store.resolve(repo, call.args["rev"])
    path = call.args["path"]
    entry = call.store.tree(repo, oid).get(path)
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
    return repo, entry, headers


async def plan_upload(call: Call) -> Response:
    """Return for each file how to upload it, whether it is ignored, and what the branch holds now."""
    repo = call.repo(write="create_pr" not in call.query and not call.args["rev"].startswith("refs/pr/"))
    call.need_user(write=True)
    return call.json(await call.in_thread(_plans, call, repo, await call.json_body()))


def _plans(call: Call, repo: Repo, body: Mapping[str, Any]) -> dict[str, Any]:
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
    known = {file["path"]: tree[file["path"]] for file in files if file["path"] in tree}
    # A client leaves out what the branch is known to hold: damaged files must go up again.
    known = {path: entry for path, entry in known.items() if call.store.has_content(repo, entry)}
    return {"files": [_plan(file, known, ignored, attributes) for file in files], "commitOid": oid}


def entry_not_found(message: str, oid: str) -> ApiError:
    """Return a 404 that names the commit: clients remember by it that the file is not there."""
    return ApiError(404, message, "EntryNotFound", headers={"X-Repo-Commit": oid})


async def send_content(
    call: Call,
    content: Content,
    size: int | None,
    headers: Mapping[str, str],
    *,
    within: tuple[int, int] | None = None,
) -> Response:
    """Answer with a file, whole or the range that the request asks for; 304 if the client has it.

    What is not `within` these bytes is refused.
    """
    asked, etag = call.request.headers, headers.get("ETag", "")
    if etag and etag in re.split(r"\s*,\s*(?:W/)?", asked.get("if-none-match", "").removeprefix("W/")):
        return Response(None, 304, headers)
    held = call.store.size(content)
    size = held if size is None else size
    if held is None or size != held:
        raise ApiError(500, "The bytes of this file are missing from the folder of the embedded Hub. Upload it again.")
    # A client that continues a download names the file that it began with.
    is_same = asked.get("if-range", etag) == etag
    span = parse_range(asked.get("range", ""), size) if is_same else None
    start, stop = span or (0, size)
    if within and not within[0] <= start <= stop <= within[1]:
        raise ApiError(403, f"This address is only for the range bytes={within[0]}-{within[1] - 1}.")
    headers = {**headers, "Accept-Ranges": "bytes", "Content-Length": str(stop - start)}
    if span:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    status, kind = (206 if span else 200), "application/octet-stream"
    if call.request.method == "HEAD" or isinstance(content, bytes):
        body = content[start:stop] if isinstance(content, bytes) else None
        return Response(body, status, headers, kind)
    pieces = call.store.pieces(content, start, stop)
    try:
        first = await call.in_thread(next, pieces, b"")
    except Malformed as error:
        raise ApiError(
            500, f"This file is damaged in the folder of the embedded Hub ({error}). Upload it again."
        ) from error
    return StreamingResponse(_after(first, pieces), status, headers, kind)


async def _after(first: bytes, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in iterate_in_threadpool(pieces):
        yield piece


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


def _plan(file: Mapping[str, Any], tree: Mapping[str, TreeEntry], ignored: str, attributes: str) -> dict[str, Any]:
    path, size = file["path"], file.get("size")
    is_lfs = (isinstance(size, int) and size > REGULAR_LIMIT) or bool(_lfs_paths(attributes).match(path))
    plan = {
        "path": path,
        "uploadMode": "lfs" if is_lfs else "regular",
        "shouldIgnore": bool(_ignored_paths(ignored).match(path)),
    }
    return plan | ({"oid": tree[path].content_id} if path in tree else {})


@functools.lru_cache(maxsize=64)
def _lfs_paths(attributes: str) -> re.Pattern[str]:
    lines = [line.split() for line in attributes.splitlines() if "filter=lfs" in line and not line.startswith("#")]
    return _any_of(words[0] for words in lines if words)


@functools.lru_cache(maxsize=64)
def _ignored_paths(text: str) -> re.Pattern[str]:
    lines = (line.strip() for line in text.splitlines())
    return _any_of(line for line in lines if line and not line.startswith("#"))


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Compile git's simple patterns, which name a path as a whole, by its name or by a folder above it."""
    choices = []
    for pattern in (pattern.strip("/") for pattern in patterns):
        above = "" if "/" in pattern else "(?:.*/)?"
        choices.append(f"{above}(?:{fnmatch.translate(pattern)}|{re.escape(pattern)}/.*)")
    return re.compile("|".join(choices) or "(?!)", re.DOTALL)


def _items(
    call: Call,
    repo: Repo,
    found: Mapping[str, TreeEntry | Folder],
    last: Mapping[str, Commit] | None,
) -> list[dict[str, Any]]:
    """Describe entries of a tree, with their last commits if those are given."""
    sha256s = [item.sha256 for item in found.values() if isinstance(item, TreeEntry) and item.sha256]
    hashes = call.store.chunks.hashes(repo.scope, sha256s) if call.hub.with_xet else {}
    items = [_item(path, item) for path, item in found.items()]
    for details in items:
        if last is not None and (commit := last.get(details["path"])):
            details["lastCommit"] = {"id": commit.oid, "title": commit.title, "date": commit.created_at}
            if details["type"] == "file":
                details["securityFileStatus"] = None
        if xet_hash := hashes.get(details.get("lfs", {}).get("oid", "")):
            details["xetHash"] = xet_hash
    return items


def _item(path: str, item: TreeEntry | Folder) -> dict[str, Any]:
    details: dict[str, Any]
    if isinstance(item, Folder):
        details = {"type": "directory", "oid": item.oid, "size": 0, "path": path}
    else:
        details = {"type": "file", "oid": item.oid, "size": item.size, "path": path}
        if item.sha256:
            details["lfs"] = lfs_details(item, "oid")
    return details


async def _form(call: Call) -> dict[str, Any]:
    """Read `paths` and `expand` from a form (as clients send them) or from JSON."""
    limit = JSON_LIMIT if call.user else PUBLIC_LIMIT
    if "json" in call.request.headers.get("content-type", ""):
        body = await call.json_body(limit, from_anyone=True)
        paths, expand = body.get("paths", []), str(body.get("expand", ""))
    else:
        fields = parse_qs((await call.body(limit, from_anyone=True)).decode("utf-8", "replace"), keep_blank_values=True)
        paths, expand = fields.get("paths", []), (fields.get("expand") or [""])[0]
    return {"paths": checked_paths(paths), "expand": expand.lower() in ("true", "1")}


def checked_paths(paths: Any) -> list[str]:
    """Return the paths that a request lists."""
    if not isinstance(paths, list) or len(paths) > _MAX_PATHS or not all(isinstance(path, str) for path in paths):
        raise ApiError(400, f"`paths` must be a list of at most {_MAX_PATHS} texts.", "BadRequest")
    return paths


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
    Route("GET", "/{kinds}/{ns}/{name}/raw/{rev}/{path...}", send_raw),
    Route("GET", "/{ns}/{name}/raw/{rev}/{path...}", send_raw),
)
