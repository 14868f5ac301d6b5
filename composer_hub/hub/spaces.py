"""The Space with published datasets: served on this machine, or written to the Hub in one commit.

In: the names of datasets. Out: a running app and its URL, or the commit of a Space that pins the datasets.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from huggingface_hub import CommitOperationAdd
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import httpx

from composer_hub import exits, extras
from composer_hub.hub.destinations import HubDestination, sentence, status_of
from composer_hub.hub.loading import load
from composer_hub.local_hub import children
from composer_hub.local_hub.env import client_env
from composer_hub.local_hub.server import embedded
from composer_hub.options import option

NEEDED = ("gradio", "duckdb", "rapidfuzz")
START_SECONDS = 600.0  # an app whose process lives is slow on a busy machine, not broken


@dataclass(frozen=True)
class ReviewSettings:
    """How pairs are reviewed."""

    open_labels: bool = option(False, "Name student and teachers before a reader decides.")
    review_size: int = option(60, "Pairs of one review.", min=1, max=1000)
    # Without either, the Space has its own words.
    guidelines: Path | None = option(None, "Markdown for reviewers. Default: the card's 'Guidelines'.")

    def words(self, guidelines: str) -> dict[str, str]:
        """Return the settings as the app reads them, those that differ from its own."""
        settings = {
            "open_labels": "yes" if self.open_labels else "",
            "review_size": str(self.review_size) if self.review_size != ReviewSettings.review_size else "",
            "guidelines": guidelines if self.guidelines else "",
        }
        return {name: value for name, value in settings.items() if value}


def existing(where: HubDestination, refs: Sequence[str], *, pin: bool = False) -> list[str]:
    """Check that every dataset is there and was published by composer_hub; `pin` replaces tags by commits."""
    versions = [load(where, ref if "@" in ref else f"{ref}@main") for ref in refs]
    return [f"{one.repo}@{one.revision if pin or not one.tag else one.tag}" for one in versions]


# --------------------------------------------------------------------------------------------------------------- files


def app_folder() -> Path:
    """Return the folder of the app: in the installed package, else in the checkout."""
    packaged = Path(str(resources.files("composer_hub") / "space_app"))
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "space"


def app_files(
    pinned: Sequence[str], org: str | None = None, review: ReviewSettings = ReviewSettings()
) -> Mapping[str, bytes]:
    """Return the files of a deployed Space: path -> content."""
    root = app_folder()
    paths = [path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
    settings = {"datasets": list(pinned), **review.words("guidelines.md")}
    files["space.json"] = json.dumps(settings, indent=2).encode() + b"\n"
    if review.guidelines:
        files["guidelines.md"] = review.guidelines.read_bytes()
    readme = files["README.md"].decode()
    head = "datasets:\n" + "".join(f"  - {one.split('@')[0]}\n" for one in pinned)
    if org:
        head += f"hf_oauth_authorized_org: {org}\n"
    files["README.md"] = re.sub(r"\A---\n", f"---\n{head}", readme).encode()
    return files


# ------------------------------------------------------------------------------------------------------------- the Hub


def write_space(where: HubDestination, name: str, files: Mapping[str, bytes], *, public: bool, message: str) -> str:
    """Write the files of a Space in one commit and return its revision."""
    api = where.api
    try:
        api.create_repo(name, repo_type="space", space_sdk="gradio", private=not public, exist_ok=True)
        if not public and not api.repo_info(name, repo_type="space").private:
            raise exits.Refused(f"The Space {name} is public. Make it private first, or add --public.")
        additions = [CommitOperationAdd(path, content) for path, content in files.items()]
        return api.create_commit(name, additions, commit_message=message[:72], repo_type="space").oid
    except HfHubHTTPError as error:
        raise _explained(name, error) from error


def _explained(name: str, error: HfHubHTTPError) -> Exception:
    if status_of(error) == 402:
        return exits.Refused(
            f"{name}: {sentence(error)} The account's plan or credit does not cover this Space. Use the free hardware "
            "(cpu-basic), make room in the account's private storage, or deploy with --public."
        )
    return exits.ComposerError(f"{name} could not be written: {sentence(error)}")


# -------------------------------------------------------------------------------------------------------------- server


def check_needed() -> None:
    """Refuse to open the Space without its libraries."""
    extras.need("The Space", "space", *NEEDED)


@contextmanager
def serving(
    names: Sequence[str], to: str, port: int = 0, review: ReviewSettings = ReviewSettings()
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Serve the Space on loopback; yield its URL and process, which ends with the block. Port 0 takes a free one."""
    port = port or _free_port()
    url = f"http://127.0.0.1:{port}/"
    env = _env(to) | {
        "SPACE_DATASETS": " ".join(names),
        "GRADIO_SERVER_NAME": "127.0.0.1",
        "GRADIO_SERVER_PORT": str(port),
    }
    settings = review.words(str(review.guidelines.resolve()) if review.guidelines else "")
    env |= {f"SPACE_{name.upper()}": value for name, value in settings.items()}
    app = children.start([str(app_folder() / "app.py")], env=env, stdout=subprocess.DEVNULL)
    with children.ending(app) as process:
        _wait(process, url)
        yield url, process


def _env(to: str) -> dict[str, str]:
    if to == "hub":
        return dict(os.environ)
    running = embedded()
    return client_env(
        os.environ, running.endpoint, running.token, home=running.root / "home", with_xet=running.with_xet
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    """Wait until the app answers."""
    until = time.monotonic() + START_SECONDS
    with httpx.Client(trust_env=False, timeout=2) as client:
        while time.monotonic() < until:
            if process.poll() is not None:
                raise exits.ComposerError(f"The Space ended at its start with exit code {process.returncode}.")
            with contextlib.suppress(httpx.HTTPError):
                if client.get(f"{url}healthz").status_code == 200:
                    return
            time.sleep(0.1)
    raise exits.ComposerError(f"The Space did not answer at {url} within {START_SECONDS:.0f} s.")
