"""A processor that is always busy, for the tests of what a busy machine must not change."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture
def busy_processor() -> Iterator[None]:
    """Let this process and its children share one processor with others that never rest."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    # Each in a session of its own, because the scheduler shares a processor between sessions.
    # They end with this process, even if it is killed.
    command = ["sh", "-c", f"while kill -0 {os.getpid()}; do :; done"]
    busy = [subprocess.Popen(command, start_new_session=True) for _ in range(12)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()
        os.sched_setaffinity(0, before)
