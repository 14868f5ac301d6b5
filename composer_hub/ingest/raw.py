"""Raw session files in a private dataset, as the Hub's trace viewer opens them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from composer_hub import exits
from composer_hub.hub import Add, Destination, HubError, Moved

_FILES_PER_COMMIT = 90
_MAX_TRIES = 5
_CARD = """---
pretty_name: "{title}"
license: other
tags:
- agent-traces
- composer-hub
---

# {title}

Session files as the harnesses wrote them: **not redacted**, kept private. The Hub's viewer opens them as traces. The
redacted, structured traces made from them are in the dataset without `-sessions` in its name.
"""


def publish_raw(destination: Destination, repo: str, paths: Iterable[Path]) -> int:
    """Upload the session files that the dataset lacks; return how many."""
    destination.prepare(repo, private=True)
    if destination.is_private(repo) is False:
        raise exits.Refused(
            f"{repo} is public: raw sessions are not redacted. Make it private first. Nothing was uploaded."
        )
    # Files with the same bytes share a name, and a commit may write a name once.
    wanted = {raw_name(path): path for path in paths}
    head, missing = _missing(destination, repo, wanted)
    count = moved = 0
    card = Add.of("README.md", _CARD.format(title=f"{repo.split('/')[1]}: raw agent sessions").encode())
    while missing:
        batch = missing[:_FILES_PER_COMMIT]
        try:
            head = destination.commit(repo, [card, *batch], title="Add raw sessions", body="", parent=head)
        except Moved:
            moved += 1
            if moved == _MAX_TRIES:
                raise HubError(
                    f"{repo} kept moving; {count:,} raw sessions were added. Run the same command again when others "
                    "have finished."
                ) from None
            head, missing = _missing(destination, repo, wanted)
            continue
        count += len(batch)
        missing = missing[len(batch) :]
    return count


def _missing(destination: Destination, repo: str, wanted: Mapping[str, Path]) -> tuple[str | None, list[Add]]:
    """Return the head and the files that it lacks."""
    head = destination.resolve(repo, "main")
    there = destination.files(repo, head) if head else {}
    return head, [Add.of(name, path) for name, path in wanted.items() if name not in there]


def raw_name(path: Path) -> str:
    """Return the path of a session file in the dataset, named by content so that no local path shows."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return f"sessions/{digest}{path.suffix}"
