"""Arguments and results of the embedded Hub's handlers, and how a part plugs in.

A part (repos, files, discussions, …) is a module with `ROUTES`, a tuple of `Route`s, and if it keeps something a
`SCHEMA` of repeatable `create table if not exists …` statements. Both are listed in `parts.py`; nothing else is needed:

    def show_head(call: Call) -> Response:
        repo = call.repo()                        # finds the repository, applies the access rules, or raises
        return call.json({"head": call.store.resolve(repo, "main")})

    ROUTES = (Route("GET", "/api/{kinds}/{ns}/{name}/head", show_head),)

A pattern is matched against the raw path, segment by segment; `{x}` is one segment (decoded after matching, so
`refs%2Fpr%2F1` is one), `{x...}` the rest, `{kinds}` is models, datasets or spaces. A handler that is a plain function
runs in a thread. One that is `async` runs in the event loop: it may look up one row there, anything slower goes through
`call.in_thread(function, …)`, and everything that writes through `call.write(function, …)`. Everything that fails
raises `ApiError` (or an error of the store, which `app.py` translates).
"""

from __future__ import annotations

import functools
import json
import re
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response

from composer_hub.local_hub.accounts import Accounts, User
from composer_hub.local_hub.blobs import BlobWriter
from composer_hub.local_hub.direct import BLOCK, body_socket
from composer_hub.local_hub.errors import LocalHubError
from composer_hub.local_hub.store import KINDS, Repo, Store

_MAX_WRITERS, _MAX_PREVIEWS = 64, 2
_MAX_PARTS = 1000
"""As many parts as the system writes at once."""
JSON_LIMIT, PUBLIC_LIMIT = 4 << 20, 1 << 20
"""A JSON body may be this long, and one of whose sender is unknown; what is longer is answered 413."""
STALE = "The branch was updated since you opened this page. Please refresh and try again."
"""The Hub's own words for 412; clients look for them."""

T = TypeVar("T")
Handler = Callable[["Call"], Awaitable[Response] | Response]
OpenPullRequest = Callable[[sqlite3.Connection, Repo, User, str, str, str], int]
"""(transaction, repo, author, title, description, base oid) -> the number of the new pull request."""


class ApiError(LocalHubError):
    """An answer that is an error: status, message and the code in `X-Error-Code` that clients look at."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str = "",
        *,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code
        self.body, self.headers = dict(body or {}), dict(headers or {})


@dataclass(frozen=True)
class Hub:
    """The state of a running embedded Hub, shared by its handlers."""

    store: Store
    accounts: Accounts
    endpoint: str
    with_xet: bool = False
    allow_local_jobs: bool = False
    allowed_hosts: frozenset[str] = frozenset()
    open_pull_request: OpenPullRequest | None = None
    may_push: Callable[[Call, Repo, str], bool] = lambda call, repo, ref: call.may_write(repo)
    """Whether the caller may commit to the ref of a pull request."""
    writers: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_MAX_WRITERS))
    """Threads of requests that write: they wait for each other and must not keep those from working that read."""
    preview_readers: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_MAX_PREVIEWS))
    previews: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """First rows of Parquet files that were read, by the id of their content; a few are read at once."""
    extra: dict[str, Any] = field(default_factory=dict)
    """State that a part keeps while the server runs (job processes, sessions), under the part's own name."""


@dataclass(frozen=True)
class Route:
    """Requests of one method on one pattern of paths, and who answers them. Method `GET` also takes HEAD."""

    method: str
    pattern: str
    handler: Handler
    own_auth: bool = False
    """The handler checks a signature itself; `call.user` is None."""
    on_error: Callable[[Call, ApiError], Response] | None = None
    """Answers an error in the form of the route; the form of the API by default."""

    @functools.cached_property
    def _regex(self) -> re.Pattern[str]:
        return _regex(self.pattern)

    @functools.cached_property
    def _bare_regex(self) -> re.Pattern[str]:
        return _regex(self.pattern.replace("{ns}/", ""))

    def match(self, method: str, raw_path: str) -> dict[str, str] | None:
        """Return the decoded words of the path if this route is meant."""
        return self._words(self._regex, method, raw_path)

    def match_bare(self, method: str, raw_path: str) -> dict[str, str] | None:
        """Return the decoded words if this route is meant with a name that has no namespace, such as `gpt2`."""
        return self._words(self._bare_regex, method, raw_path) if "{ns}/{name}" in self.pattern else None

    def _words(self, regex: re.Pattern[str], method: str, raw_path: str) -> dict[str, str] | None:
        if method != self.method and not (method == "HEAD" and self.method == "GET"):
            return None
        words = regex.fullmatch(raw_path)
        return {key: unquote(value) for key, value in words.groupdict().items()} if words else None


@dataclass
class Call:
    """One request on its way: who asks, for what, and where to look."""

    hub: Hub
    request: Request
    user: User | None
    args: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.hub.store

    @property
    def query(self) -> Any:
        return self.request.query_params

    def flag(self, name: str) -> bool:
        """Read a yes/no query parameter as the clients write it."""
        return self.query.get(name, "").lower() in ("1", "true")

    def number(self, name: str, default: int) -> int:
        """Read a number of the query; what is none counts as not given."""
        text = self.query.get(name, "")
        return int(text) if text.isdecimal() and len(text) < 10 else default

    def need_user(self, *, write: bool = False) -> User:
        """Return who asks; anonymous requests and read-only tokens (where `write`) are refused."""
        if self.user is None:
            raise ApiError(401, "Invalid username or password.")
        if write and not self.user.can_write:
            raise ApiError(403, "Forbidden: this token can only read. Use one that can write.")
        return self.user

    def repo(self, *, write: bool = False, kind: str = "", name: str = "") -> Repo:
        """Find the repository of this path and check the right to it."""
        is_in_path = not name
        kind = kind or self.args.get("kinds", "models")[:-1]
        name = name or f"{self.args['ns']}/{self.args['name']}"
        repo = self.store.find_repo(kind, name)
        if repo is None and is_in_path:
            self._lead_to_new_name(kind, name)
        if repo is None or not self.may_read(repo):
            raise self.repo_not_found(f"{kind}s/{name}", is_in_path=is_in_path)
        if write and not self.may_write(repo):
            self.need_user(write=True)
            raise ApiError(403, f"Forbidden: you do not have write access to {repo.kind} {repo.name}.")
        return repo

    def may_read(self, repo: Repo) -> bool:
        """Return whether the caller sees that this repository exists."""
        return not repo.is_private or (self.user is not None and self.user.may_read(repo.namespace))

    def may_write(self, repo: Repo) -> bool:
        return self.user is not None and self.user.may_write(repo.namespace, repo.created_by)

    def repo_not_found(self, what: str, *, is_in_path: bool = True) -> ApiError:
        """Return the one answer for what is not there and for what the caller may not see."""
        if self.user is None:
            return ApiError(401, f"Repository not found: {what}. If it is private, send a token.", "RepoNotFound")
        # If the address names it, exactly the Hub's words: clients append any longer message to their own.
        message = "Repository not found" if is_in_path else f"Repository not found: {what}"
        return ApiError(404, message, "RepoNotFound", body={"repository": what})

    async def body(self, limit: int = JSON_LIMIT, *, from_anyone: bool = False) -> bytes:
        """Read the whole body, up to a limit. Check the caller's rights before."""
        if not from_anyone:
            self.need_user()
        parts, size = [], 0
        async for part in self.request.stream():
            size += len(part)
            if size > limit:
                raise ApiError(413, f"The request body is larger than {limit} bytes.", "PayloadTooLarge")
            parts.append(part)
        return b"".join(parts)

    async def stream_to(self, writer: BlobWriter, limit: int) -> None:
        """Hash and write the body in threads, a piece at a time; most of a long one straight from the socket."""
        announced = self.request.headers.get("content-length", "")
        length = int(announced) if announced.isdecimal() else 0
        socket = body_socket(self.request.scope)
        parts: list[bytes] = []
        held = 0
        async for part in self.request.stream():
            parts.append(part)
            held += len(part)
            if max(writer.size + held, length) > limit:
                raise ApiError(413, f"More than {limit} bytes came.", "PayloadTooLarge")
            rest = length - writer.size - held
            if socket is not None and rest >= BLOCK and socket.is_free:
                writer.write(*parts)  # no await: the parser must not read on
                await socket.read(rest, writer.write)
                if writer.size == length:
                    return
                parts, held = [], 0
            elif held >= BLOCK or len(parts) >= _MAX_PARTS:
                await self.in_thread(writer.write, *parts)
                parts, held = [], 0
        await self.in_thread(writer.write, *parts)

    async def json_body(self, limit: int = JSON_LIMIT, *, from_anyone: bool = False) -> dict[str, Any]:
        """Read a JSON object; an empty body is an empty object. Check the caller's rights before."""
        body = await self.body(limit, from_anyone=from_anyone)
        if not body:
            return {}
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ApiError(400, "The request body is not valid JSON.", "BadRequest") from error
        if not isinstance(value, dict):
            raise ApiError(400, "The request body must be a JSON object.", "BadRequest")
        return value

    async def in_thread(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run something slow beside the event loop."""
        return await to_thread.run_sync(functools.partial(function, *args, **kwargs))

    async def write(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run something beside the event loop that may wait for others who write."""
        return await to_thread.run_sync(functools.partial(function, *args, **kwargs), limiter=self.hub.writers)

    def json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        return json_response(value, status, headers)

    def url(self, path: str) -> str:
        """Return an absolute URL on the host that the caller used."""
        host = self.request.headers.get("host")
        return (f"http://{host}" if host else self.hub.endpoint) + path

    def _lead_to_new_name(self, kind: str, name: str) -> None:
        """Answer a request for an old name with a redirect, if the caller may see the new one.

        307 keeps method and body: a write continues to the new name, and its rights are checked there.
        """
        new_name = self.store.moved_to(kind, name)
        target = self.store.find_repo(kind, new_name) if new_name else None
        if target is not None and self.may_read(target):
            path = self.request.scope["raw_path"].decode("latin-1").replace(name, target.name, 1)
            query = self.request.url.query
            raise ApiError(307, f"Moved to {target.name}", headers={"Location": path + (f"?{query}" if query else "")})


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response; a lone surrogate, which has no UTF-8 form, becomes `?`."""
    content = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(content, status, headers, "application/json")


def not_offered(method: str, path: str) -> ApiError:
    """Return the answer to a request that no part of this Hub serves."""
    what = f"{method} {path[:300]}"
    message = f"The embedded Hub does not offer {what}. docs/hub.md lists what it does; use the real Hub for this."
    return ApiError(501, message, "NotImplemented", body={"missing": what})


def error_response(error: ApiError) -> Response:
    """Write an error as the Hub does: in the body and in the headers that clients read."""
    # A header is one line of printable ASCII without blanks at its ends; a request may contain anything.
    message = "".join(letter if " " <= letter <= "~" else "?" for letter in error.message).strip()
    headers = {"X-Error-Message": message, **({"X-Error-Code": error.code} if error.code else {}), **error.headers}
    return json_response({"error": error.message, **error.body}, error.status, headers)


def text_field(body: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """Return a text of a JSON body, or the default if it is missing or null; refuse anything else."""
    value = body.get(key)
    if value is None:
        value = default
    if not isinstance(value, str):
        raise ApiError(400, f"The field {key!r} must be a text.", "BadRequest")
    return value


def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)(\.\.\.)?\}|[^{]+", _group, pattern))


def _group(found: re.Match[str]) -> str:
    name, is_rest = found.groups()
    if name is None:
        return re.escape(found.group())
    if name == "kinds":
        return "(?P<kinds>" + "|".join(f"{kind}s" for kind in KINDS) + ")"
    return f"(?P<{name}>.+)" if is_rest else f"(?P<{name}>[^/]+)"
