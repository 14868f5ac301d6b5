"""`composer-hub hub open`: look at the embedded Hub in a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from urllib.parse import urlsplit

import click

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.cli.upkeep import data_option
from composer_hub.local_hub.env import default_root
from composer_hub.local_hub.server import embedded
from composer_hub.output import Output


@click.command("open", short_help="Open the Hub's pages in a browser.")
@click.argument("name", metavar="[PAGE]", default="")
@data_option
@click.option("--no-browser", is_flag=True, help="Print the address and open nothing.")
@format_option
def open_page(name: str, data: Path | None, no_browser: bool, out: Output) -> None:
    """Sign a browser in and open a page: hub open datasets/me/pairs, or a link that a client printed."""
    from huggingface_hub.utils import httpx

    running = embedded((data or default_root()).absolute())
    parts = urlsplit(name)
    if parts.netloc and f"{parts.scheme}://{parts.netloc}" != running.endpoint:
        raise exits.UsageError(f"{name} is not a page of {running.endpoint}, the Hub of {running.root}.")
    page = "/" + parts.path.lstrip("/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Authorization": f"Bearer {running.token}"}
    with httpx.Client(trust_env=False, timeout=30) as client:
        answer = client.post(f"{running.endpoint}/api/login-link", headers=headers, json={"next": page})
    url = answer.raise_for_status().json()["url"]
    out.record({"url": url}, id_key="url")
    out.note("This address signs one browser in, for reading, once.")
    if not no_browser:
        webbrowser.open(url)
