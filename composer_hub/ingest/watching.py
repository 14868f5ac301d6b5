"""Changes of session files: paths in, one signal per settled change out.

Harnesses write a session line by line. A change has settled once nothing changed for some seconds. A session that never
rests is passed on after a longer time, and again later.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from composer_hub.ingest.files import find_files, stat_of
from composer_hub.ingest.report import FileReport

MAX_WAIT = 20
"""Times the settling time after which a change is passed on although files still grow."""

Snapshot = dict[Path, tuple[int, ...]]


def snapshot_of(paths: Iterable[str | os.PathLike[str]]) -> Snapshot:
    """Return the size and time of every file under the paths."""
    return {path: stat_of(path) for path in find_files(paths, FileReport())}


def settled_changes(
    look: Callable[[], Snapshot],
    *,
    settle: float,
    now: Callable[[], float],
    sleep: Callable[[float], None],
) -> Iterator[None]:
    """Yield at once, and then once after each change has settled; a caller that fails throws into the generator.

    A change that came while the caller worked is a new one, since the files were looked at before.
    """
    taken: Snapshot | None = None
    latest = look()
    first_change = still_since = now() - settle
    while True:
        if latest != taken and (now() - still_since >= settle or now() - first_change >= MAX_WAIT * settle):
            taken = latest
            yield
        sleep(settle / 4)
        before, latest = latest, look()
        if latest != before:
            still_since = now()
            first_change = now() if before == taken else first_change


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other watcher of the same dataset reads or publishes, so that each change is published once."""
    try:
        import fcntl
    except ImportError:  # without it two watchers may do the same work; what they publish is merged
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "watch.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
