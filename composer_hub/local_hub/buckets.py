"""Buckets over HTTP: create, list, settings, batches, listings, tokens, and the bytes of a file with ranges.

Bytes go up and mostly down through Xet; a plain GET is answered by decoding from the same CAS, a piece at a time.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import Response

from composer_hub.local_hub import bucketstore
from composer_hub.local_hub.bucketstore import Bucket, BucketFile
from composer_hub.local_hub.calls import JSON_LIMIT, PUBLIC_LIMIT, ApiError, Call, Hub, Route
from composer_hub.local_hub.files import checked_paths, send_content
from composer_hub.local_hub.repos import may_open, visibility_of
from composer_hub.local_hub.store import Exists
from composer_hub.local_hub.xettokens import area_of, grant

PAGE = 1000
MAX_OPERATIONS = 5000
_NAME = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
SCHEMA = bucketstore.SCHEMA


def find(call: Call, name: str, *, write: bool = False) -> Bucket:
    """Find a bucket and check the right to it; what the caller may not see is answered as if it were not there."""
    bucket = bucketstore.find_bucket(call.store.read(), name)
    user = call.user
    if bucket is None or (bucket.is_private and not (user is not None and user.may_read(bucket.namespace))):
        status = 401 if user is None else 404
        raise ApiError(status, f"Bucket not found: {name[:200]}", "RepoNotFound")
    if write and not call.need_user(write=True).may_write(bucket.namespace, bucket.created_by):
        raise ApiError(403, f"Forbidden: you do not have write access to the bucket {bucket.name}.")
    return bucket


def check_offered(hub: Hub) -> None:
    """Refuse a request with 501 if this server runs without Xet, which buckets need."""
    if not hub.with_xet:
        raise ApiError(501, "Buckets need Xet, and this server runs without it (--no-xet).", "NotImplemented")


def _named(call: Call, *, write: bool = False) -> Bucket:
    return find(call, f"{_namespace(call)}/{call.args['name']}", write=write)


def _namespace(call: Call) -> str:
    """Return the namespace of the path; `me` is the caller, and without one the user of this name, if there is one."""
    is_name = call.args["ns"] != "me" or (call.user is None and call.hub.accounts.holds_namespace("me"))
    return call.args["ns"] if is_name else call.need_user().name


# ---------------------------------------------------------------------------------------------------------- requests


async def create(call: Call) -> Response:
    """Create a bucket; if it exists, answer 409 with its address, which clients read with `exist_ok`."""
    user, namespace = call.need_user(write=True), _namespace(call)
    name = f"{namespace}/{call.args['name']}"
    check_offered(call.hub)
    if not _NAME.fullmatch(call.args["name"]):
        raise ApiError(400, f"Invalid bucket name: {call.args['name'][:200]!r}. Use letters, digits, '-', '_' and '.'.")
    if not user.may_create_in(namespace):
        raise ApiError(403, f'You don\'t have the rights to create a bucket under the namespace "{namespace[:200]}"')
    body = await call.json_body()
    by_default = visibility_of(call.hub.accounts.is_private_by_default(namespace))
    visibility = _checked_visibility(body.get("visibility") or by_default)
    try:
        await call.write(bucketstore.create_bucket, call.store, name, visibility, user.name)
    except Exists as error:
        raise ApiError(409, f"You already created the bucket {name}", body=_address(call, name)) from error
    return call.json(_address(call, name))


def _address(call: Call, name: str) -> dict[str, str]:
    return {"url": call.url(f"/buckets/{name}"), "id": name, "name": name}


def show(call: Call) -> Response:
    """Answer the info of a bucket, with its size and number of files."""
    return call.json(_info(call, _named(call)))


def list_buckets(call: Call) -> Response:
    """List the buckets of a namespace that the caller may see."""
    namespace, search = _namespace(call), call.query.get("search", "").lower()
    if not call.hub.accounts.holds_namespace(namespace):
        raise ApiError(404, f"There is no user or organization {namespace[:200]!r}.", "RepoNotFound")
    is_member = call.user is not None and call.user.may_read(namespace)
    found = [
        bucket
        for bucket in bucketstore.buckets_of(call.store.read(), namespace)
        if (is_member or not bucket.is_private) and search in bucket.name.partition("/")[2].lower()
    ]
    page, headers = _page(call, found, lambda bucket: bucket.name)
    return call.json([_info(call, bucket) for bucket in page], headers=headers)


async def delete(call: Call) -> Response:
    """Delete a bucket with its files and pending uploads."""
    bucket = _named(call, write=True)
    await call.write(bucketstore.delete_bucket, call.store, bucket)
    return call.json({})


async def change_settings(call: Call) -> Response:
    """Make a bucket private or public: `private` decides, else `visibility`; without both it stays as it is."""
    bucket = _named(call, write=True)
    body = await call.json_body()
    given = visibility_of(body["private"]) if "private" in body else body.get("visibility", bucket.visibility)
    visibility = _checked_visibility(given)
    await call.write(bucketstore.set_visibility, call.store, bucket, visibility)
    return call.json({"private": visibility == "private"})


def _checked_visibility(visibility: Any) -> str:
    if visibility not in ("public", "private"):
        raise ApiError(400, "A bucket's `visibility` is public or private.", "BadRequest")
    return str(visibility)


async def apply_batch(call: Call) -> Response:
    """Apply a batch in one transaction; list the operations that cannot be applied and do the rest."""
    bucket = _named(call, write=True)
    operations = _operations(await call.body())

    def find_source(db: sqlite3.Connection, kind: str, name: str, xet_hash: str) -> str:
        if kind != "bucket":
            repo = call.store.find_repo(kind, name)
            return repo.scope if repo is not None and may_open(call, repo) else ""
        source = bucketstore.find_bucket(db, name)
        may_read = source is not None and (
            not source.is_private or (call.user is not None and call.user.may_read(source.namespace))
        )
        return source.scope if source is not None and may_read and bucketstore.holds(db, source, xet_hash) else ""

    area = area_of(bucket.scope, call.need_user().name)
    failed = await call.write(bucketstore.apply_batch, call.store, bucket, operations, area, find_source)
    status = 422 if failed and len(failed) == len(operations) else 200
    return call.json({"success": not failed, "processed": len(operations), "failed": failed}, status)


def _operations(body: bytes) -> list[Mapping[str, Any]]:
    """Read the lines of a batch; refuse all of it if one is not a JSON object, because others may be lost."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    if len(lines) > MAX_OPERATIONS:
        raise ApiError(413, f"A batch has at most {MAX_OPERATIONS} operations. Send several.", "PayloadTooLarge")
    try:
        operations = [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "A line of the batch is not JSON.", "BadRequest") from error
    if not all(isinstance(operation, dict) for operation in operations):
        raise ApiError(400, "A line of the batch is not a JSON object.", "BadRequest")
    return operations


async def show_paths(call: Call) -> Response:
    """Describe the asked files that exist; the others are left out."""
    bucket = _named(call)
    body = await call.json_body(JSON_LIMIT if call.user else PUBLIC_LIMIT, from_anyone=True)
    paths = checked_paths(body.get("paths"))
    return call.json([file.shown() for file in bucketstore.files_at(call.store.read(), bucket, paths)])


async def show_tree(call: Call) -> Response:
    """List a folder: its files and folders, or with `recursive` every file below it."""
    bucket, prefix, after = _named(call), call.args.get("path", "").strip("/"), call.query.get("cursor", "")
    limit = min(call.number("limit", PAGE), PAGE) or PAGE

    def read() -> tuple[list[dict[str, Any]], str]:
        db = call.store.read()
        if call.query.get("recursive") and not call.flag("recursive"):
            return bucketstore.listing(db, bucket, prefix, after, limit)
        found: list[dict[str, Any]] = []
        for file in bucketstore.walk(db, bucket, prefix, after):
            if len(found) == limit:
                return found, found[-1]["path"]
            found.append(file.shown())
        return found, ""

    items, cursor = await call.in_thread(read)
    return call.json(items, headers=_link(call, cursor) if cursor else None)


async def send_file(call: Call) -> Response:
    """Answer a file: HEAD gives its Xet address, GET its bytes or a range of them."""
    bucket = _named(call)
    found = bucketstore.files_at(call.store.read(), bucket, [call.args["path"]])
    if not found:
        raise ApiError(404, f"{call.args['path'][:200]} is not in the bucket {bucket.name}.", "EntryNotFound")
    file = found[0]
    content = call.store.chunks.find(bucket.scope, file.xet_hash) if file.size else b""
    if content is None:
        raise ApiError(500, "The chunks of this file are missing from the folder of the embedded Hub. Upload it again.")
    return await send_content(call, content, file.size, _file_headers(call, bucket, file))


def _file_headers(call: Call, bucket: Bucket, file: BucketFile) -> dict[str, str]:
    name = quote(file.path.rpartition("/")[2])
    return {
        "ETag": f'"{file.xet_hash}"',
        "X-Xet-Hash": file.xet_hash,
        "X-Xet-Refresh-Route": call.url(f"/api/buckets/{bucket.name}/xet-read-token"),
        "X-Linked-Size": str(file.size),
        "X-Linked-Etag": f'"{file.xet_hash}"',
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
    }


async def read_token(call: Call) -> Response:
    """Answer a token for downloads of a bucket's chunks."""
    return await grant(call, _named(call).scope, write=False)


async def write_token(call: Call) -> Response:
    """Answer a token for uploads of chunks, to callers who may write to the bucket."""
    return await grant(call, _named(call, write=True).scope, write=True)


def _info(call: Call, bucket: Bucket) -> dict[str, Any]:
    size, count = bucketstore.totals(call.store.read(), bucket)
    return {
        "_id": f"{bucket.id:024x}",
        "id": bucket.name,
        "author": bucket.namespace,
        "private": bucket.is_private,
        "createdAt": bucket.created_at,
        "size": size,
        "totalFiles": count,
    }


def _page(call: Call, items: list[Bucket], key: Any) -> tuple[list[Bucket], dict[str, str] | None]:
    """Return the items after the cursor, up to a page, and the link to the next page."""
    cursor = call.query.get("cursor", "")
    rest = [item for item in items if key(item) > cursor]
    return rest[:PAGE], _link(call, key(rest[PAGE - 1])) if len(rest) > PAGE else None


def _link(call: Call, cursor: str) -> dict[str, str]:
    kept = [(key, value) for key, value in call.query.multi_items() if key != "cursor"]
    path = call.request.scope["raw_path"].decode("latin-1")
    return {"Link": f'<{call.url(path)}?{urlencode([*kept, ("cursor", cursor)])}>; rel="next"'}


_ONE = "/api/buckets/{ns}/{name}"

ROUTES = (
    Route("GET", "/api/buckets/{ns}", list_buckets),
    Route("GET", _ONE, show),
    Route("POST", _ONE, create),
    Route("DELETE", _ONE, delete),
    Route("PUT", f"{_ONE}/settings", change_settings),
    Route("POST", f"{_ONE}/batch", apply_batch),
    Route("POST", f"{_ONE}/paths-info", show_paths),
    Route("GET", f"{_ONE}/tree", show_tree),
    Route("GET", f"{_ONE}/tree/{{path...}}", show_tree),
    Route("GET", f"{_ONE}/xet-read-token", read_token),
    Route("GET", f"{_ONE}/xet-write-token", write_token),
    Route("GET", "/buckets/{ns}/{name}/resolve/{path...}", send_file),
)
