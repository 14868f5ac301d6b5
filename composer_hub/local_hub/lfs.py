"""Large files by the LFS protocol: ask what is missing, stream it up, check it; list and forget what there is.

Upload addresses carry a signature instead of a login: the protocol sends none with the bytes. Bytes go to disk as they
come; the memory of an upload is one chunk.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

from starlette.responses import Response

from composer_hub.local_hub.calls import ApiError, Call, Route, text_field
from composer_hub.local_hub.repos import check_gate
from composer_hub.local_hub.signing import read_signed, signed
from composer_hub.local_hub.store import Repo, Store
from composer_hub.local_hub.trees import lfs_entry

_VALID_SECONDS = 24 * 3600
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_OBJECTS = 2000


async def batch(call: Call) -> Response:
    """Name an upload address for every object that the repository does not hold yet."""
    repo = call.repo()
    body = await call.json_body()
    is_upload = body.get("operation") == "upload"
    if is_upload:
        # Anyone who may read may propose a pull request, and its large files go up before it is opened.
        call.need_user(write=True)
    objects = body.get("objects")
    if not isinstance(objects, list) or len(objects) > _MAX_OBJECTS or not all(map(_is_object, objects)):
        raise ApiError(
            400, f"`objects` must be a list of at most {_MAX_OBJECTS} `oid` (sha256) and `size`.", "BadRequest"
        )

    def answer() -> list[dict[str, Any]]:
        with call.store.write() if is_upload else contextlib.nullcontext():
            return [_actions(call, repo, item, is_upload) for item in objects]

    answers = await call.write(answer)
    headers = {"Content-Type": "application/vnd.git-lfs+json"}
    return call.json({"transfer": "basic", "hash_algo": "sha256", "objects": answers}, headers=headers)


async def receive(call: Call) -> Response:
    """Stream one object to disk and keep it if it is what was announced."""
    repo_id, sha256, size = _checked(call)
    announced = call.request.headers.get("content-length")
    if announced is not None and announced != str(size):
        raise ApiError(400, f"The upload has {announced} bytes, but {size} were announced.", "BadRequest")
    with call.store.blobs.writer() as writer:
        await call.stream_to(writer, size)
        writer.check(sha256, size)
        await call.write(call.store.add_lfs, call.store.repo_by_id(repo_id), sha256, size)
        await call.in_thread(writer.keep, sha256)
    return call.json({})


async def verify(call: Call) -> Response:
    """Answer 200 if the object of an upload has arrived with its announced size, else 404."""
    repo_id, sha256, size = _checked(call)
    if call.store.lfs_size(call.store.repo_by_id(repo_id), sha256) != size:
        raise ApiError(404, f"The object {sha256} has not been uploaded.", "LfsObjectMissing")
    return call.json({})


async def list_objects(call: Call) -> Response:
    """List the LFS files of all branches with the newest commit that brought each."""
    repo = call.repo(write=True)
    return call.json(await call.in_thread(_objects, call, repo))


async def forget_objects(call: Call) -> Response:
    """Take LFS files out of the repository and its whole history; no commit names them afterwards."""
    repo = call.repo(write=True)
    body = await call.json_body()
    deletions = body.get("deletions")
    sha256s = deletions.get("sha") if isinstance(deletions, dict) else None
    if not isinstance(sha256s, list) or not all(isinstance(item, str) for item in sha256s):
        raise ApiError(400, "`deletions.sha` must be a list of sha256.", "BadRequest")
    await call.write(call.store.forget_lfs, repo, set(sha256s))
    return call.json({})


async def duplicate_objects(call: Call) -> Response:
    """Give large files of a repository to another; list those that cannot be copied."""
    source, body = call.repo(), await call.json_body()
    check_gate(call, source)
    target, files = body.get("target"), body.get("files")
    if not isinstance(target, dict) or not isinstance(files, list) or len(files) > _MAX_OBJECTS:
        message = f"`target` must be an object, and `files` a list of at most {_MAX_OBJECTS} objects."
        raise ApiError(400, message, "BadRequest")
    repo = call.repo(write=True, kind=text_field(target, "type", "model"), name=text_field(target, "name"))
    sha256s = [str(file.get("sha256")) if isinstance(file, dict) else "" for file in files]
    failed = await call.write(_give, call.store, source, repo, sha256s)
    return call.json({"failed": [{"sha256": sha256, "error": "The repository has no such file."} for sha256 in failed]})


def _give(store: Store, source: Repo, target: Repo, sha256s: list[str]) -> list[str]:
    """Give contents of one repository to another; return those that it lacks."""
    failed = []
    with store.write():
        for sha256 in sha256s:
            size = store.lfs_size(source, sha256)
            entry = lfs_entry(sha256, size or 0)
            if size is None or not store.has_content(source, entry):
                failed.append(sha256)
            elif file := store.chunked(source, entry):
                store.add_chunked(target, file)
            else:
                store.add_lfs(target, sha256, size)
    return failed


def _objects(call: Call, repo: Repo) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    for ref in call.store.refs(repo):
        for commit, changes in call.store.log_with_changes(repo, ref.oid):
            if commit.oid in seen:
                break  # so were all before it
            seen.add(commit.oid)
            for path, entry in changes.items():
                if entry is not None and entry.sha256:
                    found.setdefault(
                        entry.sha256,
                        {
                            "fileOid": entry.sha256,
                            "oid": entry.sha256,
                            "filename": path,
                            "size": entry.size,
                            "pushedAt": commit.created_at,
                            "ref": ref.ref,
                        },
                    )
    return list(found.values())


def _actions(call: Call, repo: Repo, item: dict[str, Any], is_upload: bool) -> dict[str, Any]:
    sha256, size = item["oid"], item["size"]
    answer: dict[str, Any] = {"oid": sha256, "size": size}
    held = call.store.lfs_size(repo, sha256)
    if held is not None and held != size:
        return answer | {"error": {"code": 422, "message": f"{sha256} has {held} bytes, not {size}"}}
    if not is_upload:
        return answer | {"error": {"code": 501, "message": "Download through /resolve/ instead."}}
    if held is not None and call.store.has_content(repo, lfs_entry(sha256, size)):
        # The commit that will name it may come late.
        call.store.add_lfs(repo, sha256, size)
        return answer
    href = call.url(f"/_lfs/{signed(call.store, 'upload', repo.id, sha256, size, seconds=_VALID_SECONDS)}")
    return answer | {"actions": {"upload": {"href": href, "header": {}}, "verify": {"href": f"{href}/verify"}}}


def _checked(call: Call) -> tuple[int, str, int]:
    """Return (repo id, sha256, size) of an upload address that we signed."""
    values = read_signed(call.store, "upload", call.args["signed"])
    if not values:
        raise ApiError(403, "This upload address is not valid, or has expired. Ask for a new one.")
    repo_id, sha256, size = values
    return int(repo_id), sha256, int(size)


def _is_object(item: Any) -> bool:
    if not isinstance(item, dict) or not isinstance(item.get("oid"), str) or not _SHA256.fullmatch(item["oid"]):
        return False
    size = item.get("size")
    return isinstance(size, int) and not isinstance(size, bool) and size >= 0


ROUTES = (
    Route("POST", "/{ns}/{name}.git/info/lfs/objects/batch", batch),
    Route("POST", "/{kinds}/{ns}/{name}.git/info/lfs/objects/batch", batch),
    Route("PUT", "/_lfs/{signed}", receive, own_auth=True),
    Route("POST", "/_lfs/{signed}/verify", verify, own_auth=True),
    Route("GET", "/api/{kinds}/{ns}/{name}/lfs-files", list_objects),
    Route("POST", "/api/{kinds}/{ns}/{name}/lfs-files/batch", forget_objects),
    Route("POST", "/api/{kinds}/{ns}/{name}/lfs-files/duplicate", duplicate_objects),
)
