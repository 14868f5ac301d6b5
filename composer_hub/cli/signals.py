"""SIGTERM and a closed terminal end a command as Ctrl-C does: servers stop and scratch folders are removed first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from composer_hub.exits import END_SIGNALS


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """Raise KeyboardInterrupt inside the block on the first signal, and exit with 128 + its number after the block.

    A signal that is ignored stays so (`nohup`), and a command may set its own handler.
    """
    received: list[int] = []

    def receive(number: int, frame: Any) -> None:
        received.append(number)
        if len(received) == 1:  # the others must not interrupt the cleaning up
            raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    ours = [number for number in END_SIGNALS if is_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, receive)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        if received:
            # Not by the signal itself: scratch folders are also removed while Python ends.
            raise SystemExit(128 + received[0])
