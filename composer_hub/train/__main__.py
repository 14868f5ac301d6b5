"""`python -m composer_hub.train …` trains as `scripts/train.py` does, from the installed package."""

import os
import signal
import sys
from typing import Any

from composer_hub import exits
from composer_hub.local_hub.characters import visible
from composer_hub.train.checks import check_words


def main() -> int:
    """Check the options before torch is imported, then train."""
    try:
        check_words(sys.argv[1:])
    except exits.ComposerError as error:
        print(visible(f"train: {error}"), file=sys.stderr)
        return error.exit_code
    from composer_hub.train.run.main import main as train

    return train()


def listen() -> None:
    """Let a signal end the program in one sentence; a run listens for itself."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)


def _leave(number: int, _: Any) -> None:
    """End a program that has not begun. An exception in the middle of an import may be printed, or caught and lost."""
    os.write(2, b"train: ended before anything was begun.\n")  # a print must not be entered twice
    os._exit(exits.noted(lambda: exits.INTERRUPTED if number == signal.SIGINT else exits.STOPPED))


if __name__ == "__main__":
    listen()
    sys.exit(exits.noted(main))
