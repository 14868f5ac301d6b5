"""The embedded Hub as an ASGI application: one request in, the right part's answer or the Hub's own error out."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import errno
import functools
import inspect
import logging
import re
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, MutableMapping
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from composer_hub.local_hub import database, parts
from composer_hub.local_hub.accounts import Accounts, User
from composer_hub.local_hub.blobs import WrongContent
from composer_hub.local_hub.calls import STALE, ApiError, Call, Hub, Route, error_response, not_offered
from composer_hub.local_hub.database import DatabaseBusy, is_busy
from composer_hub.local_hub.errors import LocalHubError
from composer_hub.local_hub.sessions import browser_user
from composer_hub.local_hub.store import BadRef, Exists, HeadMoved, NoContent, NoRepo, NoRevision, Store
from composer_hub.local_hub.trees import BadPath, MissingPath
from composer_hub.local_hub.xorbs import Malformed

log = logging.getLogger("uvicorn.error")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_KNOWN = (BadRef, Exists, HeadMoved, NoRepo, NoRevision, NoContent, MissingPath, BadPath, WrongContent, Malformed)
_OF_A_REPOSITORY = re.compile(r"/api/(?P<kinds>models|datasets|spaces)/(?P<ns>[^/]+)/(?P<name>[^/]+)(?:/.*)?")
MISSING = (
    "An object is missing from the folder of the embedded Hub. `composer-hub hub check` names the files to upload."
)
BUSY = "Another process writes to the folder of the embedded Hub. Nothing of this request was stored; send it again."
PATIENCE = 8.0
"""How long a request waits for others who write, in seconds: clients wait for ten."""
FULL = "The disk of the embedded Hub is full. Nothing of this request was stored; free some space and send it again."


def open_store(root: Path, *, is_shared: bool = False, patience: float = database.PATIENCE) -> Store:
    """Open a folder with the tables of all parts; `is_shared` if a server may be using it."""
    store = Store(root, is_shared=is_shared, patience=patience)
    for schema in parts.SCHEMAS:
        store.add_schema(schema)
    if not is_shared:
        for prepare in parts.AT_START:
            prepare(store)
    return store


def make_hub(store: Store, accounts: Accounts, endpoint: str, **options: Any) -> Hub:
    """Put a Hub together from a store, accounts and the parts of `parts.py`."""
    hub = Hub(
        store,
        accounts,
        endpoint,
        open_pull_request=parts.OPEN_PULL_REQUEST,
        may_push=parts.MAY_PUSH,
    )
    return dataclasses.replace(hub, **options)


class App:
    """Answers every request; nothing that a client sends may end in silence or in a traceback."""

    def __init__(self, hub: Hub, routes: tuple[Route, ...] = parts.ROUTES) -> None:
        self.hub, self.routes = hub, routes
        self._of_method: dict[str, list[Route]] = collections.defaultdict(list)
        for route in routes:
            for method in (route.method, "HEAD") if route.method == "GET" else (route.method,):
                self._of_method[method].append(route)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _live(receive, send)
        if scope["type"] != "http":
            return None
        request = Request(scope, receive, send)
        try:
            response = await self.answer(request)
        except ClientDisconnect:
            return None
        except asyncio.CancelledError:  # by uvicorn, when the server stops
            response = error_response(ApiError(503, "The server is stopping. Send the request again when it is back."))
        # Exact, where uvicorn's own date is up to two seconds old: clients cut a log after the date of the answer.
        response.headers.setdefault("Date", formatdate(usegmt=True))
        response.headers.setdefault("X-Request-Id", _request_id(request))
        try:
            await response(scope, receive, send)
        except (LocalHubError, OSError, asyncio.CancelledError) as error:
            # The head is already sent, so only a broken connection can signal the error.
            log.error("%s broke off: %s", request.url.path, error)

    async def answer(self, request: Request) -> Response:
        """Find the route and let it answer; turn every known error into the Hub's words for it."""
        respond = error_response
        try:
            self._check_host(request)
            path = request.scope["raw_path"].decode("latin-1")
            for route in self._of_method.get(request.method, ()):
                if (args := route.match(request.method, path)) is not None:
                    user = None if route.own_auth else self._user(request)
                    call = Call(self.hub, request, user, args)
                    respond = functools.partial(route.on_error, call) if route.on_error else respond
                    return await _answered(route, call)
            raise self._unanswered(request, path)
        except ApiError as error:
            return respond(error)
        except _KNOWN as error:
            return respond(_translated(error))
        except (OSError, sqlite3.OperationalError) as error:
            if isinstance(error, FileNotFoundError):
                return error_response(ApiError(500, MISSING))
            if isinstance(error, DatabaseBusy) or (isinstance(error, sqlite3.OperationalError) and is_busy(error)):
                return respond(ApiError(503, BUSY, headers={"Retry-After": "1"}))
            if not is_full(error):
                raise
            return respond(ApiError(507, FULL))
        except UnicodeEncodeError:
            # JSON may hold half of a surrogate pair, which no database, file name or answer can.
            return error_response(ApiError(400, "A text of the request is not valid Unicode.", "BadRequest"))

    def _unanswered(self, request: Request, path: str) -> ApiError:
        """Return 404 for a repository that is not here or has no namespace, and 501 for everything else."""
        for route in self.routes:
            if (args := route.match_bare(request.method, path)) is not None:
                return Call(self.hub, request, self._user(request), args).repo_not_found(args["name"])
        if words := _OF_A_REPOSITORY.fullmatch(path):
            args = {key: unquote(value) for key, value in words.groupdict().items()}
            try:
                Call(self.hub, request, self._user(request), args).repo()
            except ApiError as error:
                return error
        return not_offered(request.method, path)

    def _check_host(self, request: Request) -> None:
        """Refuse a Host that is not ours: a web page of a stranger can point its own name at 127.0.0.1."""
        host = request.headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self.hub.allowed_hosts and name.strip("[]").lower() not in self.hub.allowed_hosts:
            raise ApiError(403, "This Host is not served here. Use the address that `composer-hub hub status` prints.")

    def _user(self, request: Request) -> User | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return browser_user(self.hub, request)
        user = self.hub.accounts.user_of(token.strip())
        if user is None:
            raise ApiError(401, "Invalid credentials in Authorization header")
        return user


async def _answered(route: Route, call: Call) -> Response:
    handler: Any = route.handler
    return await (handler(call) if inspect.iscoroutinefunction(handler) else call.in_thread(handler, call))


def _request_id(request: Request) -> str:
    """Return the id that the client gave to its request, as the Hub does, or a new one."""
    given = (request.headers.get(name, "") for name in ("x-request-id", "x-amzn-trace-id"))
    return next((text for text in given if re.fullmatch(r"[\w=;.:-]{1,200}", text)), "Root=" + secrets.token_hex(8))


def is_full(error: Exception) -> bool:
    """Return whether an error means that the disk, or the quota on it, is used up."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return "full" in str(error)


def _translated(error: Exception) -> ApiError:
    if isinstance(error, HeadMoved):
        return ApiError(412, STALE)
    if isinstance(error, Exists):
        return ApiError(409, str(error))
    if isinstance(error, NoRepo):
        return ApiError(404, str(error), "RepoNotFound")
    if isinstance(error, NoRevision):
        return ApiError(404, str(error), "RevisionNotFound")
    if isinstance(error, NoContent):
        return ApiError(400, str(error), "LfsObjectMissing")
    if isinstance(error, MissingPath):
        return ApiError(404, str(error), "EntryNotFound")
    if isinstance(error, BadPath):
        return ApiError(422, str(error), "InvalidPath")
    return ApiError(400, str(error), "BadRequest")


async def _live(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        await send({"type": event["type"] + ".complete"})
        if event["type"] == "lifespan.shutdown":
            return
