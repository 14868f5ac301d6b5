"""Commits and the refs that name them: the ndjson commit, history, branches, tags, squash."""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from composer_hub.local_hub.calls import ApiError, Call, Route, text_field
from composer_hub.local_hub.store import INLINE_LIMIT, Commit, NoRevision, Repo
from composer_hub.local_hub.trees import DeleteFile, Operation, PutFile, TreeEntry, check_path, git_oid, lfs_entry
from composer_hub.local_hub.xet import adopt

LINE_LIMIT = 64 << 20
COMMIT_LIMIT = 1 << 30
"""The Hub's own bound for the regular files of one commit."""
_MAX_INLINE = 8 << 20
_MAX_TITLE = 4096
_REF = re.compile(r"(?!.*(?:\.\.|//|@\{))[A-Za-z0-9_][\w.+/-]{0,254}(?<![./])")


@dataclass
class CommitDraft:
    """A commit as it comes in: operations in order, and the bytes of small files that go into its transaction."""

    title: str = ""
    description: str = ""
    parent: str = ""
    operations: list[Operation] = field(default_factory=list)
    small: list[bytes] = field(default_factory=list)
    large: list[TreeEntry] = field(default_factory=list)
    num_small_bytes: int = 0


async def commit(call: Call) -> Response:
    """Take an ndjson commit: all of it becomes visible in one step, or nothing does."""
    as_pull_request = call.flag("create_pr")
    revision = call.args["rev"]
    user = call.need_user(write=True)
    repo = call.repo(write=not as_pull_request and not revision.startswith("refs/pr/"))
    ref = _full_ref(revision)
    if ref.startswith("refs/pr/") and not as_pull_request:
        _check_pull_request(call, repo, ref)
    draft = await _read_draft(call, repo)
    if not draft.title:
        raise ApiError(400, "The commit has no `summary`.", "BadRequest")
    opened: list[int] = []

    def open_pull_request(db: sqlite3.Connection, base: str) -> str:
        assert call.hub.open_pull_request is not None
        opened.append(call.hub.open_pull_request(db, repo, user, draft.title, draft.description, base))
        return f"refs/pr/{opened[0]}"

    if as_pull_request and call.hub.open_pull_request is None:
        raise ApiError(501, "This embedded Hub has no pull requests.", "NotImplemented")
    write = functools.partial(
        call.store.commit,
        repo,
        ref,
        draft.operations,
        title=draft.title,
        description=draft.description,
        author=user.name,
        small=draft.small,
        large=draft.large,
        parent=draft.parent,
        before=open_pull_request if as_pull_request else None,
    )
    made = await call.write(write)
    page = call.url("/" + repo.web_path)
    answer: dict[str, Any] = {"success": True, "commitOid": made.oid, "commitUrl": f"{page}/commit/{made.oid}"}
    if opened:
        answer["pullRequestUrl"] = f"{page}/discussions/{opened[0]}"
    return call.json(answer | {"hookOutput": ""})


def show_commits(call: Call) -> Response:
    """Answer a page of a revision's history, newest first; headers hold the total and the next page."""
    repo = call.repo()
    start = call.store.resolve(repo, call.args["rev"])
    page, limit = call.number("p", 0), min(call.number("limit", 50) or 50, 1000)
    oids = call.store.history(repo, start)
    headers = {"X-Total-Count": str(len(oids))}
    if (page + 1) * limit < len(oids):
        path = f"/api/{call.args['kinds']}/{repo.name}/commits/{quote(call.args['rev'], safe='')}"
        expand = "".join(f"&expand[]={quote(value)}" for value in call.query.getlist("expand[]"))
        headers["Link"] = f'<{call.url(path)}?p={page + 1}&limit={limit}{expand}>; rel="next"'
    formatted = "formatted" in call.query.getlist("expand[]")
    shown = [call.store.find_commit(repo, oid) for oid in oids[page * limit : (page + 1) * limit]]
    return call.json([_commit(item, formatted) for item in shown], headers=headers)


def show_refs(call: Call) -> Response:
    """Answer branches and tags with their commits; pull requests only if the caller asks for them."""
    repo = call.repo()
    refs = call.store.refs(repo)
    found = {
        key: [{"name": ref.name, "ref": ref.ref, "targetCommit": ref.oid} for ref in refs if ref.ref.startswith(prefix)]
        for key, prefix in (("branches", "refs/heads/"), ("tags", "refs/tags/"), ("pullRequests", "refs/pr/"))
    }
    if not call.flag("include_prs") and not call.flag("include_pull_requests"):
        del found["pullRequests"]
    return call.json(found | {"converts": []})


async def create_branch(call: Call) -> Response:
    """Create a branch at `startingPoint`, by default at main."""
    repo = call.repo(write=True)
    body = await call.json_body()
    ref = f"refs/heads/{_ref_name(call.args['branch'])}"
    start = call.store.resolve(repo, text_field(body, "startingPoint", "") or "main")
    await call.write(call.store.create_ref, repo, ref, start)
    return call.json({})


async def delete_branch(call: Call) -> Response:
    """Delete a branch other than main."""
    repo = call.repo(write=True)
    if call.args["branch"] == "main":
        raise ApiError(403, "Cannot delete refs/heads/main")
    await call.write(call.store.delete_ref, repo, f"refs/heads/{call.args['branch']}")
    return call.json({})


async def create_tag(call: Call) -> Response:
    """Create a tag at a revision, with a message if the body has one."""
    repo = call.repo(write=True)
    body = await call.json_body()
    target = call.store.resolve(repo, call.args["rev"])
    ref = f"refs/tags/{_ref_name(text_field(body, 'tag'))}"
    await call.write(call.store.create_ref, repo, ref, target, text_field(body, "message", ""))
    return call.json({})


async def delete_tag(call: Call) -> Response:
    """Delete a tag; the path holds its name as `rev`."""
    repo = call.repo(write=True)
    await call.write(call.store.delete_ref, repo, f"refs/tags/{call.args['rev']}")
    return call.json({})


async def squash(call: Call) -> Response:
    """Replace the history of a branch or a pull request by one commit; tags keep theirs."""
    repo = call.repo(write=True)
    body = await call.json_body()
    ref = _full_ref(call.args["rev"])
    if call.store.head(repo, ref) is None and call.store.head(repo, f"refs/tags/{call.args['rev']}") is not None:
        raise ApiError(400, "Invalid reference for a branch: a tag cannot be squashed.", "BadRequest")
    title = (text_field(body, "message", "") or f"Super-squash branch '{call.args['rev']}'")[:_MAX_TITLE]
    made = await call.write(call.store.replace_history, repo, ref, title=title, author=call.need_user().name)
    return call.json({"oid": made.oid})


async def _read_draft(call: Call, repo: Repo) -> CommitDraft:
    """Read the lines of a commit as they come; big contents go to disk at once."""
    draft = CommitDraft()
    async for line in _lines(call):
        try:
            item = json.loads(line)
            key, value = item["key"], item["value"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ApiError(400, "A line of the commit is not a JSON object with `key` and `value`.") from error
        if not isinstance(value, dict):
            raise ApiError(400, "The `value` of a commit line must be an object.", "BadRequest")
        if key == "header":
            draft.title = text_field(value, "summary")[:_MAX_TITLE]
            draft.description = text_field(value, "description", "")
            draft.parent = text_field(value, "parentCommit", "")
        elif key == "file":
            await _add_file(call, draft, value)
        elif key == "lfsFile":
            path = check_path(text_field(value, "path"))
            draft.large.append(await _lfs_file(call, repo, text_field(value, "oid")))
            draft.operations.append(PutFile(path, draft.large[-1]))
        elif key in ("deletedFile", "deletedFolder"):
            draft.operations.append(DeleteFile(text_field(value, "path"), is_folder=key == "deletedFolder"))
        else:
            raise ApiError(400, f"Unknown commit operation: {str(key)[:100]}", "BadRequest")
    return draft


async def _add_file(call: Call, draft: CommitDraft, value: dict[str, Any]) -> None:
    path, content = check_path(text_field(value, "path")), text_field(value, "content")
    try:
        data = base64.b64decode(content, validate=True) if value.get("encoding") == "base64" else content.encode()
    except (binascii.Error, ValueError) as error:
        raise ApiError(400, f"The content of {path!r} is not valid base64.", "BadRequest") from error
    if len(data) <= INLINE_LIMIT and draft.num_small_bytes + len(data) <= _MAX_INLINE:
        draft.small.append(data)
        draft.num_small_bytes += len(data)
        entry = TreeEntry(git_oid(data), len(data))
    else:
        entry = await call.write(call.store.add_large, data)
        draft.large.append(entry)
    draft.operations.append(PutFile(path, entry))


async def _lfs_file(call: Call, repo: Repo, sha256: str) -> TreeEntry:
    """Return the entry of an LFS file that this repository was given, or that the caller sent to it as chunks."""
    size = call.store.lfs_size(repo, sha256)
    if size is None or not call.store.has_content(repo, lfs_entry(sha256, size)):
        await call.write(adopt, call.store, repo, call.need_user(), sha256)
        size = call.store.lfs_size(repo, sha256)
    return lfs_entry(sha256, size or 0)


async def _lines(call: Call) -> AsyncIterator[bytes]:
    """Split the body into lines as it arrives, within the limits of a line and of a commit."""
    rest, total = bytearray(), 0
    async for part in call.request.stream():
        total += len(part)
        start = len(rest)
        rest += part
        if total > COMMIT_LIMIT:
            raise ApiError(413, f"The commit is larger than {COMMIT_LIMIT} bytes. Use LFS for large files.")
        if rest.find(b"\n", start) >= 0:
            *lines, tail = rest.split(b"\n")
            rest = bytearray(tail)
            for line in lines:
                if line.strip():
                    yield bytes(line)
        if len(rest) > LINE_LIMIT:
            raise ApiError(413, f"A file of the commit is larger than {LINE_LIMIT} bytes. Use LFS for large files.")
    if rest.strip():
        yield bytes(rest)


def _check_pull_request(call: Call, repo: Repo, ref: str) -> None:
    """Let those push to a pull request whom the part that keeps it lets: its author and who may write."""
    if call.store.head(repo, ref) is None:
        raise NoRevision(f"Invalid rev id: {ref}")
    if not call.hub.may_push(call, repo, ref):
        raise ApiError(403, f"Forbidden: you do not have write access to {ref} of {repo.name}.")


def _full_ref(revision: str) -> str:
    return revision if revision.startswith("refs/") else f"refs/heads/{revision}"


def _ref_name(name: str) -> str:
    if not _REF.fullmatch(name) or name.startswith("refs/") or name == "HEAD" or name.endswith(".lock"):
        raise ApiError(400, f"Invalid reference name: {name[:200]!r}", "BadRequest")
    return name


def _commit(item: Commit, formatted: bool) -> dict[str, Any]:
    details: dict[str, Any] = {
        "id": item.oid,
        "title": item.title,
        "message": item.description,
        "authors": _authors(item),
        "date": item.created_at,
    }
    if formatted:
        details["formatted"] = {"title": _escaped(item.title), "message": f"<p>{_escaped(item.description)}</p>"}
    return details


def _authors(item: Commit) -> Sequence[dict[str, str]]:
    return [{"user": item.author}] if item.author else []


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


ROUTES = (
    Route("POST", "/api/{kinds}/{ns}/{name}/commit/{rev}", commit),
    Route("GET", "/api/{kinds}/{ns}/{name}/commits/{rev}", show_commits),
    Route("GET", "/api/{kinds}/{ns}/{name}/refs", show_refs),
    Route("POST", "/api/{kinds}/{ns}/{name}/branch/{branch}", create_branch),
    Route("DELETE", "/api/{kinds}/{ns}/{name}/branch/{branch}", delete_branch),
    Route("POST", "/api/{kinds}/{ns}/{name}/tag/{rev}", create_tag),
    Route("DELETE", "/api/{kinds}/{ns}/{name}/tag/{rev}", delete_tag),
    Route("POST", "/api/{kinds}/{ns}/{name}/super-squash/{rev}", squash),
)
