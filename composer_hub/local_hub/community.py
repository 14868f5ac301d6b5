"""Discussions and pull requests: readers of a repository may comment and propose changes, and its writers may merge.

A pull request is a discussion with its own ref, `refs/pr/N`, and the commit of main at its opening. Merging
is by whole files: a file changed differently on both sides is a conflict (409); one commit on main carries
the rest.
"""

from __future__ import annotations

import html
import json
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from composer_hub.local_hub import merging
from composer_hub.local_hub.accounts import User
from composer_hub.local_hub.calls import ApiError, Call, Route, text_field
from composer_hub.local_hub.repos import check_gate
from composer_hub.local_hub.store import Commit, Repo, Store
from composer_hub.local_hub.trees import Changes, DeleteFile, Operation, PutFile, Tree

PAGE = 50
MAIN = "refs/heads/main"
HIDDEN = "This comment has been hidden"
MAX_TITLE = 200
MAX_COMMENT = 65_536
_IS_OPEN = ("open", "draft")

# A deleted repository takes its discussions along, or the next repository with its row id would inherit them.
SCHEMA = """
create table if not exists discussions(
    repo integer, num integer, title text not null, status text not null, is_pr integer not null, author text not null,
    created_at text not null, base text not null default '', merged_as text not null default '',
    primary key(repo, num)) without rowid;
create table if not exists discussion_events(
    number integer primary key, id text not null unique, repo integer not null, num integer not null,
    type text not null, author text not null, created_at text not null, data text not null);
create index if not exists discussion_events_by_num on discussion_events(repo, num);
create trigger if not exists discussions_go_with_repo after delete on repos begin
    delete from discussions where repo = old.id;
    delete from discussion_events where repo = old.id;
end;
"""
_NOW = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"


@dataclass(frozen=True, slots=True)
class Discussion:
    """One discussion or pull request; `base` is the commit of main at which a pull request was opened."""

    repo: int
    num: int
    title: str
    status: str
    is_pr: int
    author: str
    created_at: str
    base: str
    merged_as: str

    @property
    def ref(self) -> str:
        return f"refs/pr/{self.num}"


# ---------------------------------------------------------------------------------------------------------- storage


def open_discussion(
    db: sqlite3.Connection, repo: Repo, author: str, title: str, description: str, *, status: str, base: str = ""
) -> int:
    """Add a discussion with its first comment, or with `base` a pull request; return its number."""
    (num,) = db.execute("select coalesce(max(num), 0) + 1 from discussions where repo=?", (repo.id,)).fetchone()
    db.execute(
        "insert into discussions(repo, num, title, status, is_pr, author, created_at, base) "
        f"values(?,?,?,?,?,?,{_NOW},?)",
        (repo.id, num, title[:MAX_TITLE], status, int(bool(base)), author, base),
    )
    add_event(db, repo, num, author, "comment", _comment(description, author))
    return num


def open_pull_request(db: sqlite3.Connection, repo: Repo, user: User, title: str, description: str, base: str) -> int:
    """Open the pull request of a commit, in the transaction that writes the commit."""
    return open_discussion(db, repo, user.name, title, description, status="open", base=base)


def add_event(
    db: sqlite3.Connection, repo: Repo, num: int, author: str, type: str, data: Mapping[str, Any]
) -> dict[str, Any]:
    """Add one event to a discussion and return it as clients read it."""
    (number,) = db.execute(
        f"insert into discussion_events(id, repo, num, type, author, created_at, data) values(?,?,?,?,?,{_NOW},?) "
        "returning number",
        (secrets.token_hex(12), repo.id, num, type, author, json.dumps(data)),
    ).fetchone()
    return _event_row(db.execute(f"select {_EVENT} from discussion_events where number=?", (number,)).fetchone())


_EVENT = "id, type, author, created_at, data"


def _event_row(row: tuple[str, str, str, str, str]) -> dict[str, Any]:
    id, type, author, created_at, data = row
    return {"id": id, "type": type, "author": {"name": author}, "createdAt": created_at, "data": json.loads(data)}


def find(db: sqlite3.Connection, repo: Repo, num: str) -> Discussion:
    """Return a discussion by the number in a path."""
    row = None
    if num.isascii() and num.isdigit() and len(num) < 16:
        row = db.execute("select * from discussions where repo=? and num=?", (repo.id, int(num))).fetchone()
    if row is None:
        raise ApiError(404, f"{repo.kind} {repo.name} has no discussion {num[:40]!r}. List its discussions first.")
    return Discussion(*row)


def _comment(text: str, author: str, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write a comment's data; with `before`, the data it had, it is an edit that keeps the former texts."""
    history = [*before["history"], before["latest"]] if before else []
    latest = {"raw": text, "html": f"<p>{html.escape(text)}</p>", "author": {"name": author}}
    return {
        "edited": before is not None,
        "hidden": False,
        "latest": latest,
        "history": history,
        "numEdits": len(history),
    }


# ---------------------------------------------------------------------------------------------------------- merging


@dataclass(frozen=True)
class Proposal:
    """A pull request as it is now: its commits, the trees to compare, its changes to main and its conflicts."""

    commits: list[Commit]
    before: Tree
    diff: Changes
    changes: Changes
    conflicts: list[str]


def propose(store: Store, repo: Repo, pull: Discussion) -> Proposal:
    """Compare a pull request with the commit at which it left main, and with main as it is now."""
    head = store.head(repo, pull.ref) or pull.base
    main = pull.base if pull.merged_as else store.resolve(repo, MAIN)
    commits, base = _own_commits(store, repo, head, main, pull.base)
    before, theirs = store.tree(repo, base), store.tree(repo, head)
    diff = store.difference(repo, base, head)
    changes, conflicts = merging.merge(before, store.tree(repo, main), theirs)
    return Proposal(commits, before, diff, changes, conflicts)


def _own_commits(store: Store, repo: Repo, head: str, main: str, base: str) -> tuple[list[Commit], str]:
    """Return the commits that only the pull request has, oldest first, and the one at which it left main."""
    on_main = {commit.oid for commit in store.log(repo, main)} | {base}
    own: list[Commit] = []
    for commit in store.log(repo, head):
        if commit.oid in on_main:
            return own[::-1], commit.oid
        own.append(commit)
    # Squashed: the way back is gone, so the commit at which the pull request was opened is the best that is known.
    return own[::-1], base


def merge(store: Store, repo: Repo, num: str, user: User, comment: str) -> Commit:
    """Merge into main; the commit, the status and the comment are one transaction."""
    with store.write() as db:
        pull = find(db, repo, num)
        if not pull.is_pr:
            raise ApiError(400, f"Discussion {num} is not a pull request: there is nothing to merge.", "BadRequest")
        if pull.status != "open":
            advice = (
                "Publish it first (status open)." if pull.status == "draft" else "Open it again, or make a new one."
            )
            raise ApiError(409, f"Pull request {num} is {pull.status}, so it cannot be merged. {advice}")
        proposal = propose(store, repo, pull)
        if proposal.conflicts:
            names = ", ".join(proposal.conflicts[:10])
            message = (
                f"Pull request {num} conflicts with main in {names}. Update these files in {pull.ref} and merge again."
            )
            raise ApiError(409, message, body={"filesWithConflicts": proposal.conflicts})
        operations: list[Operation] = [
            DeleteFile(path) if entry is None else PutFile(path, entry) for path, entry in proposal.changes.items()
        ]
        title = f"{pull.title} (#{pull.num})"
        commit = store.commit(repo, MAIN, operations, title=title, author=user.name)
        db.execute(
            "update discussions set status='merged', merged_as=? where repo=? and num=?",
            (commit.oid, repo.id, pull.num),
        )
        if comment:
            add_event(db, repo, pull.num, user.name, "comment", _comment(comment, user.name))
        add_event(db, repo, pull.num, user.name, "status-change", {"status": "merged"})
        return commit


# ---------------------------------------------------------------------------------------------------------- views


def summary(repo: Repo, discussion: Discussion) -> dict[str, Any]:
    """Return the fields of a discussion in a list."""
    return {
        "num": discussion.num,
        "title": discussion.title,
        "status": discussion.status,
        "author": {"name": discussion.author},
        "isPullRequest": bool(discussion.is_pr),
        "createdAt": discussion.created_at,
        "repo": {"name": repo.name, "type": repo.kind},
    }


def details(store: Store, repo: Repo, num: str, *, with_diff: bool) -> dict[str, Any]:
    """Return a discussion with its events; a pull request with its commits, conflicts and diff."""
    db = store.read()
    discussion = find(db, repo, num)
    rows = db.execute(
        f"select {_EVENT} from discussion_events where repo=? and num=? order by number", (repo.id, discussion.num)
    )
    shown = summary(repo, discussion) | {"events": [_dated(_event_row(row)) for row in rows]}
    if not discussion.is_pr:
        return shown
    proposal = propose(store, repo, discussion)
    shown["events"] = sorted(
        [*shown["events"], *_commit_events(proposal.commits)], key=lambda event: event["createdAt"]
    )
    shown["changes"] = {"base": MAIN, "mergeCommitId": discussion.merged_as or None}
    shown["filesWithConflicts"] = proposal.conflicts if discussion.status in _IS_OPEN else []
    if with_diff:
        shown["diff"] = merging.unified_diff(
            proposal.before, proposal.diff, lambda entry: b"".join(store.pieces(store.content(repo, entry)))
        )
    return shown


def _dated(event: dict[str, Any]) -> dict[str, Any]:
    """Give a comment the date of its last text."""
    if event["type"] == "comment":
        event["data"]["latest"].setdefault("updatedAt", event["createdAt"])
    return event


def _commit_events(commits: list[Commit]) -> Iterator[dict[str, Any]]:
    for commit in commits:
        yield {
            "id": commit.oid[:24],
            "type": "commit",
            "author": {"name": commit.author},
            "createdAt": commit.created_at,
            "data": {"subject": commit.title, "oid": commit.oid},
        }


# ---------------------------------------------------------------------------------------------------------- requests


def list_discussions(call: Call) -> Response:
    """Answer one page of discussions, the newest first, filtered by author, type and status."""
    repo = call.repo()
    where, values = ["repo=?"], [repo.id]
    if author := call.query.get("author"):
        where, values = [*where, "author=?"], [*values, author]
    for name, choices in _FILTERS.items():
        choice = call.query.get(name) or "all"
        if choice not in choices:
            raise ApiError(400, f"{name}={choice!r} is not one of {', '.join(choices)}.", "BadRequest")
        where.append(choices[choice])
    page = _page(call.query.get("p", "0"))
    condition = " and ".join(where)
    db = call.store.read()
    (count,) = db.execute(f"select count(*) from discussions where {condition}", values).fetchone()
    rows = db.execute(
        f"select * from discussions where {condition} order by num desc limit ? offset ?", (*values, PAGE, page * PAGE)
    )
    shown = [summary(repo, Discussion(*row)) for row in rows]
    return call.json({"discussions": shown, "count": count, "start": page * PAGE})


_FILTERS = {
    "type": {"all": "1", "pull_request": "is_pr=1", "discussion": "is_pr=0"},
    "status": {"all": "1", "open": "status in ('open','draft')", "closed": "status in ('closed','merged')"},
}


def _page(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ApiError(400, f"p={text[:40]!r} is not a page number. The first page is p=0.", "BadRequest")
    return int(text)


async def create_discussion(call: Call) -> Response:
    """Open a discussion, or a draft pull request that still waits for its commits."""
    user, repo = call.need_user(write=True), call.repo()
    body = await call.json_body()
    title, description = _title(body), _text(body, "description")
    is_pr = body.get("pullRequest") is True

    def create() -> int:
        with call.store.write() as db:
            base = call.store.resolve(repo, MAIN) if is_pr else ""
            status = "draft" if is_pr else "open"
            num = open_discussion(db, repo, user.name, title, description, status=status, base=base)
            if is_pr:
                call.store.create_ref(repo, f"refs/pr/{num}", base)
            return num

    num = await call.write(create)
    return call.json({"num": num, "pullRequest": is_pr, "url": call.url(f"/{repo.web_path}/discussions/{num}")})


async def show_discussion(call: Call) -> Response:
    """Answer a discussion; the diff only to whom a gated repository lets read its files."""
    repo = call.repo()
    with_diff = call.flag("diff") and _may_read_files(call, repo)
    return call.json(await call.in_thread(details, call.store, repo, call.args["num"], with_diff=with_diff))


def _may_read_files(call: Call, repo: Repo) -> bool:
    try:
        check_gate(call, repo)
    except ApiError:
        return False
    return True


async def add_comment(call: Call) -> Response:
    """Add a comment; everyone who sees the repository and has a token that writes may."""
    user, repo = call.need_user(write=True), call.repo()
    text = _text(await call.json_body(), "comment")

    def add() -> dict[str, Any]:
        with call.store.write() as db:
            discussion = find(db, repo, call.args["num"])
            return _dated(add_event(db, repo, discussion.num, user.name, "comment", _comment(text, user.name)))

    return call.json({"newMessage": await call.write(add)})


async def edit_comment(call: Call) -> Response:
    """Replace the text of an own comment; the former one stays in its history."""
    call.need_user(write=True), call.repo()
    text = _text(await call.json_body(), "content")
    return await _change_comment(call, lambda data, user: _comment(text, user.name, data), also_writers=False)


async def hide_comment(call: Call) -> Response:
    """Take a comment's texts away for good; its author and those who write to the repository may."""

    def hidden(data: Mapping[str, Any], user: User) -> dict[str, Any]:
        return _comment(HIDDEN, user.name) | {"hidden": True, "edited": data["edited"]}

    return await _change_comment(call, hidden, also_writers=True)


async def _change_comment(call: Call, change: Any, *, also_writers: bool) -> Response:
    user, repo = call.need_user(write=True), call.repo()
    may_moderate = also_writers and call.may_write(repo)

    def apply() -> dict[str, Any]:
        with call.store.write() as db:
            discussion = find(db, repo, call.args["num"])
            row = db.execute(
                f"select {_EVENT} from discussion_events where repo=? and num=? and id=? and type='comment'",
                (repo.id, discussion.num, call.args["id"].lower()),
            ).fetchone()
            if row is None:
                raise ApiError(404, f"Discussion {discussion.num} has no comment {call.args['id'][:60]!r}.")
            event = _dated(_event_row(row))
            if event["author"]["name"] != user.name and not may_moderate:
                raise ApiError(403, "Forbidden: this is another user's comment.")
            if event["data"]["hidden"]:
                raise ApiError(409, "This comment is hidden; it cannot be changed any more.")
            data = change(event["data"], user)
            (data["latest"]["updatedAt"],) = db.execute(f"select {_NOW}").fetchone()
            db.execute("update discussion_events set data=? where id=?", (json.dumps(data), event["id"]))
            return event | {"data": data}

    return call.json({"updatedComment": await call.write(apply)})


async def change_title(call: Call) -> Response:
    """Change a title and note the former one; the author and those who write to the repository may."""
    user, repo = call.need_user(write=True), call.repo()
    title = _title(await call.json_body())

    def change() -> dict[str, Any]:
        with call.store.write() as db:
            discussion = find(db, repo, call.args["num"])
            _check_may_manage(call, repo, discussion, user)
            db.execute("update discussions set title=? where repo=? and num=?", (title, repo.id, discussion.num))
            return add_event(
                db, repo, discussion.num, user.name, "title-change", {"from": discussion.title, "to": title}
            )

    return call.json({"newTitle": await call.write(change)})


async def change_status(call: Call) -> Response:
    """Open or close; opening a draft publishes it. What is merged stays merged."""
    user, repo = call.need_user(write=True), call.repo()
    body = await call.json_body()
    status = text_field(body, "status")
    comment = _text(body, "comment") if body.get("comment") else ""
    if status not in ("open", "closed"):
        raise ApiError(400, f"status={status[:40]!r} is not one of open, closed.", "BadRequest")

    def change() -> dict[str, Any]:
        with call.store.write() as db:
            discussion = find(db, repo, call.args["num"])
            _check_may_manage(call, repo, discussion, user)
            if discussion.status == "merged":
                raise ApiError(409, f"Pull request {discussion.num} is merged. Make a new one to change main again.")
            db.execute("update discussions set status=? where repo=? and num=?", (status, repo.id, discussion.num))
            if comment:
                add_event(db, repo, discussion.num, user.name, "comment", _comment(comment, user.name))
            return add_event(db, repo, discussion.num, user.name, "status-change", {"status": status})

    return call.json({"newStatus": await call.write(change)})


async def merge_pull_request(call: Call) -> Response:
    """Merge a pull request into main and answer the new commit; those who write to the repository may."""
    user, repo = call.need_user(write=True), call.repo(write=True)
    body = await call.json_body()
    comment = _text(body, "comment") if body.get("comment") else ""
    commit = await call.write(merge, call.store, repo, call.args["num"], user, comment)
    return call.json({"success": True, "mergeCommitId": commit.oid})


def may_push(call: Call, repo: Repo, ref: str) -> bool:
    """Return whether the caller may commit to `refs/pr/N`: its author and those who write to the repository may."""
    if call.may_write(repo):
        return True
    query = "select author from discussions where repo=? and is_pr=1 and 'refs/pr/' || num = ?"
    row = call.store.read().execute(query, (repo.id, ref)).fetchone()
    return row is not None and call.user is not None and call.user.can_write and row[0] == call.user.name


def _check_may_manage(call: Call, repo: Repo, discussion: Discussion, user: User) -> None:
    if discussion.author != user.name and not call.may_write(repo):
        raise ApiError(403, "Forbidden: only the author and those who write to the repository may do this.")


def _title(body: Mapping[str, Any]) -> str:
    title = _valid(text_field(body, "title")).strip()
    if not 3 <= len(title) <= MAX_TITLE:
        raise ApiError(400, f"A title has 3 to {MAX_TITLE} characters; this one has {len(title)}.", "BadRequest")
    return title


def _text(body: Mapping[str, Any], key: str) -> str:
    text = _valid(text_field(body, key)).strip()
    if not 1 <= len(text) <= MAX_COMMENT:
        raise ApiError(400, f"A comment has 1 to {MAX_COMMENT} characters; this one has {len(text)}.", "BadRequest")
    return text


def _valid(text: str) -> str:
    """Replace lone surrogates, which JSON can carry and no table can hold."""
    return text.encode("utf-8", "replace").decode()


_ALL = "/api/{kinds}/{ns}/{name}/discussions"
_ONE = _ALL + "/{num}"

ROUTES = (
    Route("GET", _ALL, list_discussions),
    Route("POST", _ALL, create_discussion),
    Route("GET", _ONE, show_discussion),
    Route("POST", f"{_ONE}/comment", add_comment),
    Route("POST", f"{_ONE}/comment/{{id}}/edit", edit_comment),
    Route("POST", f"{_ONE}/comment/{{id}}/hide", hide_comment),
    Route("POST", f"{_ONE}/title", change_title),
    Route("POST", f"{_ONE}/status", change_status),
    Route("POST", f"{_ONE}/merge", merge_pull_request),
)
