"""`composer-hub ingest --watch`: publish again after each change of the sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from composer_hub import exits
from composer_hub.cli.options import Publication
from composer_hub.hub import NothingToPublish
from composer_hub.ingest.watching import one_at_a_time, settled_changes, snapshot_of
from composer_hub.output import Output


def check_watch(publication: Publication, sources: Sequence[str], *, review: bool) -> None:
    """Refuse what cannot be repeated without a person."""
    if not publication.repo or publication.dry_run:
        raise exits.UsageError("--watch publishes: name the dataset with --repo OWNER/NAME, without --dry-run.")
    if review or publication.version:
        raise exits.UsageError("--watch publishes many versions and asks no one: leave --review and --version out.")
    if any(source.startswith("hf://") for source in sources):
        raise exits.UsageError("--watch looks at files on this machine: name files or folders.")


def keep_current(out: Output, sources: Sequence[str], run: Callable[[], None], *, settle: float, folder: Path) -> None:
    """Run now and after each settled change, until Ctrl-C; a run that fails is tried again after the next change."""
    out.note(f"Watching {', '.join(sources)}. Ctrl-C stops.")
    changes = settled_changes(lambda: snapshot_of(sources), settle=settle, now=time.monotonic, sleep=time.sleep)
    while True:
        try:
            next(changes)
        except KeyboardInterrupt:  # between two runs nothing is unfinished
            out.note("Stopped watching.")
            return
        try:
            with one_at_a_time(folder):
                run()
        except NothingToPublish:
            continue
        except (exits.UsageError, exits.Refused):
            raise
        except Exception as error:  # noqa: BLE001 - such as a Hub that does not answer
            out.note(f"Not published: {error} Watching goes on, and the next change is tried.")
