"""`python -m composer_hub.train …` trains as `scripts/train.py` does, from the installed package."""

import sys

from composer_hub import exits
from composer_hub.train.run.first_look import check_words


def main() -> int:
    """Check the options before torch is imported, then train."""
    try:
        check_words(sys.argv[1:])
    except exits.ComposerError as error:
        print(f"train: {error}", file=sys.stderr)
        return error.exit_code
    from composer_hub.train.run.main import main as train

    return train()


if __name__ == "__main__":
    sys.exit(exits.noted(main))
