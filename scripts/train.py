# /// script
# requires-python = ">=3.11"
# dependencies = ["composer-hub[train,report]"]
#
# [tool.hf-jobs]
# flavor = "a100-large"
# timeout = "6h"
# secrets = ["HF_TOKEN"]
# ///
"""Train on three channels: `accelerate launch scripts/train.py --config configs/tiny.yaml`."""

import sys

from composer_hub import exits
from composer_hub.train.__main__ import listen, main

if __name__ == "__main__":
    listen()
    sys.exit(exits.noted(main))
