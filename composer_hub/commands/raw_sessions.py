"""Raw session files as a private dataset of their own, as the Hub's trace viewer opens them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from composer_hub import exits
from composer_hub.hub.destinations import Add, Destination

_FILES_A_COMMIT = 90
_CARD = """---
pretty_name: {title}
license: other
tags:
- agent-traces
- composer-hub
---

# {title}

Session files as the harnesses wrote them: **not redacted**, kept private. The Hub's viewer opens them as traces. The
redacted, structured traces made from them are in the dataset without `-sessions` in its name.
"""


def publish_raw(destination: Destination, repo: str, paths: Iterable[Path]) -> str:
    """Upload session files that are not there yet; return a sentence on what was done."""
    destination.prepare(repo, private=True)
    if destination.is_private(repo) is False:
        raise exits.Refused(
            f"{repo} is public: raw sessions are not redacted. Make it private first. Nothing was uploaded."
        )
    head = destination.resolve(repo, "main")
    there = destination.files(repo, head) if head else {}
    adds = [Add.of(name, path) for path in paths if (name := raw_name(path)) not in there]
    if not adds:
        return f"{repo} already holds every raw session."
    card = Add.of("README.md", _CARD.format(title=f"{repo.split('/')[1]}: raw agent sessions").encode())
    for start in range(0, len(adds), _FILES_A_COMMIT):
        batch = [card, *adds[start : start + _FILES_A_COMMIT]]
        head = destination.commit(
            repo, batch, title="Add raw sessions", body="", parent=destination.resolve(repo, "main")
        )
    return f"{len(adds):,} raw sessions are in {repo} (private) now."


def raw_name(path: Path) -> str:
    """Return where a session file stands: named by its content, so that nothing of the machine's paths shows."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return f"sessions/{digest}{path.suffix}"
