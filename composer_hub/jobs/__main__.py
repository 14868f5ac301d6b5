"""`python -m composer_hub.jobs …` trains as `scripts/train.py` does and records the exit code for its job."""

import sys

from composer_hub.jobs.inside import noted
from composer_hub.train.run.main import main

if __name__ == "__main__":
    sys.exit(noted(main))
