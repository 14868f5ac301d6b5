"""A Space that shows a pair set, its hints, runs and tasks, and sends reviewers' verdicts back as pull requests.

`SPACE_DATASETS` lists datasets as owner/name@revision, separated by spaces; the first one opens. With
`SPACE_OPEN_LABELS=yes` student and teachers are named before a reader decides. `SPACE_REVIEW_SIZE` is the number of
pairs of a review, `SPACE_GUIDELINES` the path of a Markdown file for reviewers. `space.json` beside this file has the
same, as `datasets`, `open_labels`, `review_size` and `guidelines`. On Hugging Face a visitor signs in; elsewhere the
token of this machine is used.
"""

import contextlib
import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import gradio as gr
from fastapi import Body, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from gradio.oauth import attach_oauth
from huggingface_hub import constants, get_token
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import httpx
from inspector.characters import visible
from inspector.desk import REVIEW_SIZE, ReviewDesk
from inspector.guard import RequestGuard
from inspector.library import NotShown, SpaceLibrary
from inspector.markup import as_json
from inspector.page import Frame, message, page
from inspector.pair_index import BadFilter
from inspector.verdicts import BadVerdict

HERE = Path(__file__).resolve().parent
ON_HUB = "SPACE_ID" in os.environ
REFUSED = (NotShown, BadFilter, BadVerdict)
EXPECTED = (*REFUSED, HfHubHTTPError, httpx.HTTPError, OSError)


def setting(name: str) -> str:
    """Return a setting: of the environment, else of `space.json`."""
    file = HERE / "space.json"
    written = json.loads(file.read_text()).get(name, "") if file.is_file() else ""
    return os.environ.get(f"SPACE_{name.upper()}") or (" ".join(written) if isinstance(written, list) else str(written))


def made_desk() -> ReviewDesk:
    """Return the desk that the settings describe."""
    guidelines = setting("guidelines")
    return ReviewDesk(
        SpaceLibrary(setting("datasets").split(), endpoint=constants.ENDPOINT),
        open_labels=setting("open_labels") == "yes",
        review_size=int(setting("review_size") or REVIEW_SIZE),
        guidelines=(HERE / guidelines).read_text(encoding="utf-8", errors="replace") if guidelines else "",
    )


def visitor(request: Request) -> tuple[str | None, str]:
    """Return the visitor's token and name: from their sign-in on the Hub, from this machine elsewhere."""
    if not ON_HUB:
        return get_token(), ""
    info = request.session.get("oauth_info") if "session" in request.scope else None
    return (info["access_token"], str(info["userinfo"].get("preferred_username", ""))) if info else (None, "")


def sentence(error: Exception) -> str:
    """Return an error's words without addresses, which can hold a signature."""
    if isinstance(error, REFUSED):
        return visible(str(error))
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code if error.response is not None else 0
        return visible(f"The Hub answered {status}: {error.server_message or 'no reason given'}")
    return f"The Hub cannot be read at the moment ({type(error).__name__})."


def reply(call: Callable[[], dict[str, Any]]) -> JSONResponse:
    """Return the result of a call, or its error in words."""
    try:
        return JSONResponse(call(), headers={"Cache-Control": "no-store"})
    except EXPECTED as error:
        status = 404 if isinstance(error, NotShown) else 400 if isinstance(error, REFUSED) else 502
        return JSONResponse({"error": sentence(error)}, status_code=status)


def build(desk: ReviewDesk) -> gr.Server:
    """Return the server: the page, its parts, verdicts, and three functions for API and MCP clients."""
    # FastAPI's own pages load scripts from elsewhere.
    server = gr.Server(title="composer_hub Space", docs_url=None, redoc_url=None, openapi_url=None)
    files = {path.name: path for path in sorted((HERE / "static").iterdir())}
    stamp = hashlib.sha256(b"".join(path.read_bytes() for path in files.values())).hexdigest()[:12]
    if ON_HUB:
        attach_oauth(server)

    @server.get("/")
    def root(request: Request) -> HTMLResponse:
        token, user = visitor(request)
        frame = Frame(user, ON_HUB, stamp, desk.library.api.endpoint, not desk.open_labels, desk.review_size)
        try:
            place, dataset = desk.place(request.query_params, token)
            # A pair comes after the list: its first read also reads the footers of all files.
            shown = desk.show(place, token, ("list",) if place["view"] == "pairs" else ("list", "detail"))
            text = page(
                shown.place,
                replace(frame, guidelines=desk.guidelines(dataset, token)),
                list_=shown.list_,
                detail=shown.detail,
                versions=desk.library.versions(shown.place["dataset"], token),
                datasets=[name.repo for name in desk.library.names],
                views=desk.views(dataset, token),
            )
            return HTMLResponse(text, headers={"Cache-Control": "no-store"})
        except EXPECTED as error:
            place = {"dataset": "", "revision": "", "view": "overview"}
            text = page(place, frame, list_=None, detail=message("This cannot be shown", sentence(error)))
            return HTMLResponse(text, status_code=404 if isinstance(error, REFUSED) else 502)

    @server.get("/part")
    def part(request: Request) -> JSONResponse:
        want = tuple(request.query_params.get("want", "list,detail").split(","))
        return reply(lambda: desk.part(request.query_params, visitor(request)[0], want))

    @server.get("/filters")
    def filters(request: Request) -> JSONResponse:
        return reply(lambda: {"html": desk.filters(request.query_params, visitor(request)[0])})

    @server.get("/text")
    def text(request: Request) -> JSONResponse:
        return reply(lambda: desk.text(request.query_params, visitor(request)[0]))

    @server.post("/verdicts")
    def submit(request: Request, body: Annotated[Any, Body()]) -> JSONResponse:
        token, _ = visitor(request)
        if token is None:
            advice = "Sign in with Hugging Face" if ON_HUB else "Log in with `hf auth login`"
            return JSONResponse({"error": f"{advice} to submit verdicts."}, status_code=401)
        return reply(lambda: desk.submit(body, token))

    @server.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in files:
            return JSONResponse({"error": "There is no such file."}, status_code=404)
        return FileResponse(files[name], headers={"Cache-Control": "public, max-age=31536000, immutable"})

    @server.get("/healthz")
    def healthz() -> dict[str, bool]:
        return {"ok": True}

    add_functions(server, desk)
    return server


# Gradio needs the annotations of these functions as types, so this file does not postpone them.
def add_functions(server: gr.Server, desk: ReviewDesk) -> None:
    """Offer the functions that programs call; each reads with the caller's own rights and returns JSON as text.

    A dictionary would be Gradio's to interpret: it takes one with a `path` for a file, which its client then
    downloads with the caller's token and its server copies.
    """

    def asked(request: gr.Request | None) -> str | None:
        return visitor(request.request)[0] if request is not None else None

    @server.api(name="search_pairs")
    def search_pairs(
        request: gr.Request,
        query: str = "",
        dataset: str = "",
        revision: str = "",
        error_kind: str = "",
        teacher: str = "",
        review: str = "",
        page: int = 0,
    ) -> str:
        """Search the preference pairs of a published set, unreviewed and most disputed first, as JSON.

        Args:
            query: Text in the actions, the repository or an id.
            dataset: Dataset as owner/name; empty for the first one of this Space.
            revision: Tag or commit; empty for the one that this Space shows.
            error_kind: Kind of error at the step, such as edit_no_match.
            teacher: Name of a teacher that agrees with the chosen action.
            review: new, accepted, rejected, edited, swapped or disputed.
            page: Page of 50 pairs, from 0.
        """
        names = {
            "q": query,
            "dataset": dataset,
            "revision": revision,
            "error_kind": error_kind,
            "teacher": teacher,
            "review": review,
            "page": str(page),
        }
        return answer(lambda: desk.search(names, asked(request)))

    @server.api(name="get_pair")
    def get_pair(request: gr.Request, pair_id: str, dataset: str = "", revision: str = "") -> str:
        """Return one preference pair as JSON: both actions, the votes, and the last messages before the step.

        Args:
            pair_id: Id of the pair.
            dataset: Dataset as owner/name; empty for the first one of this Space.
            revision: Tag or commit; empty for the one that this Space shows.
        """
        names = {"pair": pair_id, "dataset": dataset, "revision": revision}
        return answer(lambda: desk.pair(names, asked(request)))

    @server.api(name="stats")
    def stats(request: gr.Request, dataset: str = "", revision: str = "") -> str:
        """Return the numbers of a published set as JSON: report, counts by error kind and teacher, review agreement.

        Args:
            dataset: Dataset as owner/name; empty for the first one of this Space.
            revision: Tag or commit; empty for the one that this Space shows.
        """
        return answer(lambda: desk.stats({"dataset": dataset, "revision": revision}, asked(request)))


def answer(call: Callable[[], dict[str, Any]]) -> str:
    """Return the result of a call as JSON text, or its error, so that a traceback never shows a token."""
    try:
        return as_json(call())
    except EXPECTED as error:
        return as_json({"error": sentence(error)})


def main() -> None:
    """Serve until stopped."""
    desk = made_desk()
    threading.Thread(target=desk.preload, args=(None if ON_HUB else get_token(),), daemon=True).start()
    server = build(desk)
    host = os.environ.get("GRADIO_SERVER_NAME", "0.0.0.0" if ON_HUB else "127.0.0.1")
    port = int(os.environ.get("GRADIO_SERVER_PORT", "7860"))
    # A server that listens on this machine alone answers only to its names.
    hosts = ("localhost", "127.0.0.1", "::1") if host in ("127.0.0.1", "localhost") else ()
    server.add_middleware(RequestGuard, hosts=hosts, proxied=ON_HUB)
    # Ctrl-C may come before the server reports that it has started.
    with contextlib.suppress(KeyboardInterrupt):
        server.launch(
            server_name=host,
            server_port=port,
            quiet=True,
            share=False,
            run_history=False,
            ssr_mode=False,
            footer_links=[],
            mcp_server=True,
            enable_monitoring=False,
            max_file_size="1kb",
            prevent_thread_lock=True,
            strict_cors=True,
        )
        print(
            f"Serving {', '.join(map(str, desk.library.names)) or 'nothing'} at http://{host}:{port}/", file=sys.stderr
        )
        server.blocks.block_thread()
    desk.library.db.close()
    sys.stderr.flush()
    # DuckDB's bindings print a page of warnings when Python itself takes its file system apart.
    os._exit(0)


if __name__ == "__main__":
    main()
