"""`python -m composer_hub.train …` trains as `scripts/train.py` does, from the installed package."""

import sys

from composer_hub.exits import noted
from composer_hub.train.run.main import main

if __name__ == "__main__":
    sys.exit(noted(main))
