"""`python -m composer_hub.train …`: the same as `scripts/train.py`, from the installed package; what jobs carry out."""

import sys

from composer_hub.train.job import noted
from composer_hub.train.run import main

if __name__ == "__main__":
    sys.exit(noted(main))
