"""Signing a browser in: a link for one use, or a token typed into a form, gives a cookie that only reads.

The cookie is not the token: cookies of 127.0.0.1 are sent to every port, so other servers of this machine see them.
Sessions live as long as the server.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from composer_hub.local_hub.accounts import User
from composer_hub.local_hub.calls import ApiError, Call, Hub, Route, error_response, text_field
from composer_hub.local_hub.elements import esc
from composer_hub.local_hub.webpage import page

LINK_SECONDS = 600


@dataclass
class Sessions:
    """Links that were given out, and the browsers that are signed in."""

    links: dict[str, tuple[str, float]] = field(default_factory=dict)  # code -> user, until
    browsers: dict[str, str] = field(default_factory=dict)  # cookie -> user


def sessions_of(hub: Hub) -> Sessions:
    """Return the sessions of a running Hub."""
    return hub.extra.setdefault("sessions", Sessions())


def browser_user(hub: Hub, request: Request) -> User | None:
    """Return the user of a signed-in browser, who may only read; a cookie counts nowhere in the API."""
    if request.method not in ("GET", "HEAD") or request.url.path.startswith("/api/"):
        return None
    name = sessions_of(hub).browsers.get(request.cookies.get(_cookie(request), ""), "")
    return replace(hub.accounts.users[name], can_write=False) if name else None


def _cookie(request: Request) -> str:
    """Return the name of the cookie, with the port: cookies of one host are shared by its ports."""
    return f"composer_hub_{request.url.port or 80}"


async def make_link(call: Call) -> Response:
    """Answer an address that signs a browser in once: what `composer-hub hub open` opens."""
    user, body = call.need_user(), await call.json_body()
    code = secrets.token_urlsafe(24)
    sessions = sessions_of(call.hub)
    now = time.monotonic()
    sessions.links = {key: link for key, link in sessions.links.items() if link[1] > now}
    sessions.links[code] = (user.name, now + LINK_SECONDS)
    query = urlencode({"code": code, "next": _local(text_field(body, "next", "/"))})
    return call.json({"url": call.url(f"/login?{query}")})


async def show_login(call: Call) -> Response:
    """Sign in by a link, or show the form."""
    target = _local(call.query.get("next", "/"))
    name, until = sessions_of(call.hub).links.pop(call.query.get("code", ""), ("", 0.0))
    if name and until > time.monotonic():
        return _signed_in(call, name, target)
    problem = "This link was used or is too old." if "code" in call.query else ""
    return page("Sign in", login_form(target, problem), status=401 if problem else 200)


async def sign_in(call: Call) -> Response:
    """Sign in with the token of the form."""
    fields = parse_qs((await call.body(64 << 10, from_anyone=True)).decode("utf-8", "replace"))
    target = _local((fields.get("next") or ["/"])[0])
    user = call.hub.accounts.user_of((fields.get("token") or [""])[0].strip())
    if user is None:
        return page("Sign in", login_form(target, "No user has this token."), status=401)
    return _signed_in(call, user.name, target)


def login_form(target: str, problem: str = "") -> str:
    """Return the form that takes a token, as HTML."""
    note = f'<p class="problem">{esc(problem)}</p>' if problem else ""
    return (
        f'{note}<form method="post" action="/login"><input type="hidden" name="next" value="{esc(target)}">'
        '<label>Token <input type="password" name="token" autocomplete="off" required></label> '
        "<button>Sign in</button></form>"
        '<p class="quiet">Or run <code>composer-hub hub open</code>, which signs this browser in.</p>'
    )


def name_of(call: Call) -> str:
    """Return the name of the signed-in user; "" for a visitor."""
    return call.user.name if call.user else ""


def failed(call: Call, error: ApiError) -> Response:
    """Answer an error of a page as a page, with a sign-in form for visitors who are not signed in."""
    if error.status < 400 or error.status == 501:
        return error_response(error)
    asked = call.request.url.path + (f"?{call.request.url.query}" if call.request.url.query else "")
    hint = login_form(asked) if call.user is None and error.status in (401, 403, 404) else ""
    title = {401: "Not found, or private", 404: "Not found"}.get(error.status, f"Error {error.status}")
    headers = {"X-Error-Code": error.code} if error.code else {}
    return page(title, f"<p>{esc(error.message)}</p>{hint}", user=name_of(call), status=error.status, headers=headers)


def _local(path: str) -> str:
    """Return a path of this server, never the address of another one."""
    is_path = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_path else "/"


def _signed_in(call: Call, name: str, target: str) -> Response:
    cookie = secrets.token_urlsafe(24)
    sessions_of(call.hub).browsers[cookie] = name
    answer = RedirectResponse(target, 303)
    answer.set_cookie(_cookie(call.request), cookie, httponly=True, samesite="strict")
    return answer


ROUTES = (
    Route("POST", "/api/login-link", make_link),
    Route("GET", "/login", show_login),
    Route("POST", "/login", sign_in),
)
