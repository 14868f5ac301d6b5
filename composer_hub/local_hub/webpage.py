"""HTML of the embedded Hub's pages: safe pieces of text in, one page without scripts out.

Everything that a repository holds is hostile. Text is escaped, Markdown is rendered without its HTML, and the page's
policy allows no script, no foreign image and one style sheet, which is its own.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import Response

from composer_hub.local_hub.characters import visible
from composer_hub.local_hub.elements import Html, esc, h

_FRONT = re.compile(r"\s*---[ \t]*\r?\n.*?\r?\n?---[ \t]*(?:\r?\n|$)", re.DOTALL)
MAX_MARKDOWN = 400_000
STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --quiet: #5b6470; --line: #d9dee4; --back: #fff; --soft: #f5f7f9;
  --link: #0b57c2; --add: #e3f6e8; --del: #fde8e8; --note: #fff6d6 }
@media (prefers-color-scheme: dark) { :root { --text: #e4e7eb; --quiet: #9aa4b0; --line: #333a43; --back: #14171b;
  --soft: #1c2127; --link: #7db4ff; --add: #12351f; --del: #431c1e; --note: #3a3215 } }
* { box-sizing: border-box }
body { margin: 0; font: 15px/1.55 system-ui, sans-serif; color: var(--text); background: var(--back) }
header, main { max-width: 68rem; margin: auto; padding: 0 1.25rem }
header { display: flex; gap: .5rem; align-items: baseline; padding-top: 1rem; color: var(--quiet); font-size: 14px }
header .who { margin-left: auto }
h1 { font-size: 1.5rem; margin: .6rem 0; overflow-wrap: anywhere } h2 { font-size: 1.15rem; margin: 1.6rem 0 .5rem }
a { color: var(--link); text-decoration: none } a:hover { text-decoration: underline }
nav { display: flex; flex-wrap: wrap; gap: 1.2rem; border-bottom: 1px solid var(--line); margin: .8rem 0 1.2rem;
  padding-bottom: .5rem }
nav [aria-current] { font-weight: 600; color: var(--text) }
.quiet { color: var(--quiet) } .problem { background: var(--note); padding: .5rem .75rem; border-radius: 6px }
.tag { display: inline-block; border: 1px solid var(--line); border-radius: 1rem; padding: 0 .6rem;
  margin: 0 .3rem .3rem 0; font-size: 13px; color: var(--quiet); overflow-wrap: anywhere }
table { border-collapse: collapse; font-size: 14px } th, td { text-align: left; padding: .35rem .7rem .35rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top } .list { width: 100% }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px }
.wide table { width: max-content } .wide th, .wide td { padding: .35rem .7rem;
  max-width: 22rem; overflow-wrap: anywhere; white-space: pre-wrap } .wide td { min-width: 6rem }
.wide td > div { max-height: 5rem; overflow-y: auto }
.wide th { background: var(--soft) }
pre { background: var(--soft); padding: .8rem; border-radius: 6px; overflow-x: auto; font-size: 13px;
  line-height: 1.45 }
code { font-family: ui-monospace, monospace; font-size: .92em }
.card img { max-width: 100% } .card { overflow-wrap: anywhere }
.card table { display: block; overflow-x: auto; margin: 1em 0 }
.card th, .card td { overflow-wrap: break-word; padding-right: 1rem }
.comment { border: 1px solid var(--line); border-radius: 6px; padding: 0 1rem; margin: .8rem 0 }
.diff span { display: block } .diff .add { background: var(--add) } .diff .del { background: var(--del) }
input, button { font: inherit; padding: .3rem .6rem; color: inherit; background: var(--soft);
  border: 1px solid var(--line); border-radius: 6px }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def page(
    title: str, body: str, *, user: str = "", status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Answer a page; `body` is HTML, `title` and `user` are text."""
    who = f"signed in as {esc(user)}, reading only" if user else '<a href="/login">sign in</a>'
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{esc(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
        f'<header><a href="/">Embedded Hub</a><span class="who">{who}</span></header>'
        f"<main><h1>{esc(title)}</h1>{body}</main></body></html>"
    )
    return Response(text.encode("utf-8", "replace"), status, {**(headers or {}), **HEADERS}, "text/html; charset=utf-8")


def anchor(address: str, text: str, **attributes: str | bool) -> Html:
    """Return a link to an address whose parts are quoted."""
    return h("a", text, href=address, **attributes)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "list") -> Html:
    """Return a table; cells are HTML."""
    top = h("thead", h("tr", [h("th", name) for name in head])) if head else None
    lines = [h("tr", [h("td", Html(cell)) for cell in row]) for row in rows]
    return h("table", top, h("tbody", lines), cls=kind)


def diff(text: str) -> Html:
    """Return a unified diff with its lines marked."""
    kinds = {"+": "add", "-": "del"}
    shown = visible(text).splitlines()  # named first: some hidden characters end a line
    return h("pre", [h("span", line or " ", cls=kinds.get(line[:1], "")) for line in shown], cls="diff")


def markdown(text: str, files: str = "", images: str = "") -> str:
    """Render Markdown without the HTML in it; relative links lead below `files`, relative images below `images`."""
    text = _FRONT.sub("", text, count=1) if _FRONT.match(text) else text
    if len(text) > MAX_MARKDOWN:
        return f"<pre>{esc(text[:MAX_MARKDOWN])}</pre>"
    try:
        rendered = _renderer().render(text, {"files": files, "images": images})
    except RecursionError:
        return f"<pre>{esc(text)}</pre>"
    return f'<div class="card">{visible(rendered)}</div>'


def _renderer() -> Any:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 30}).enable(["table", "strikethrough"])
    parser.core.ruler.push("places", _place)
    return parser


def _place(state: Any) -> None:
    for block in state.tokens:
        for token in block.children or ():
            if token.type == "link_open":
                token.attrs["href"] = _below(str(token.attrs.get("href", "")), state.env["files"])
                token.attrs["rel"] = "noopener noreferrer nofollow"
            elif token.type == "image":
                token.attrs["src"] = _below(str(token.attrs.get("src", "")), state.env["images"])


def _below(address: str, folder: str) -> str:
    """Return a relative address below a folder; any other stays as it is."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "#"
    if parts.scheme or parts.netloc or not folder or address.startswith(("/", "#")):
        return address
    return f"{folder}/{address.removeprefix('./')}"
