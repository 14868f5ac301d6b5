"""Measure the bytes that each push of a run's rollouts uploads: all so far, and only the new ones.

    python -m benchmarks.rollout_pushes [--pushes 8] [--rollouts 400]

One run's rollouts, `--rollouts` more before each push, go to two repositories of the embedded Hub in one run: as one
table that is published whole, as runs once did, and as new files beside those of the pushes before. Bytes are those of
the files that the Hub did not hold yet. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.utils import disable_progress_bars

from composer_hub.hub import Card, HubDestination, publish
from composer_hub.ingest.dataset import trace_tables
from composer_hub.local_hub.server import start_server
from composer_hub.records import Message, Step, Trace, stable_id, to_row
from composer_hub.train.run.export import publish_rollouts, read_rollouts

CARD = Card("traces", "rollouts", license="mit", holes={"origin": "", "redaction": ""})


def rollout(number: int) -> Trace:
    rng = random.Random(number)
    messages, steps = [Message("user", f"Task {number}.")], []
    for turn in range(4):
        words = " ".join(f"{rng.getrandbits(40):x}" for _ in range(40))
        steps.append(Step(stable_id(number, turn), turn, len(messages), ((0, len(messages)),), (), family="qwen"))
        messages += [Message("assistant", words), Message("user", words[::-1])]
    provenance = {
        "run_id": "r", "policy_step": number // 16, "completion_ids": rng.choices(range(150_000), k=800),
        "logps": [round(-rng.random(), 5) for _ in range(800)],
    }  # fmt: skip
    return Trace(
        stable_id("r", number), "composer_hub", f"r-{number}", tuple(messages), tuple(steps), provenance=provenance
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pushes", type=int, default=8)
    parser.add_argument("--rollouts", type=int, default=400)
    options = parser.parse_args()
    disable_progress_bars()
    print("| push | rollouts so far | whole, KB uploaded | CPU s | appended, KB uploaded | CPU s |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name, start_server(Path(name) / "hub", ["--user", "me:hf_me"]) as server:
        where = HubDestination("hub", HfApi(endpoint=server.endpoint, token=server.token), cache=Path(name) / "cache")
        folder, totals = Path(name) / "rollouts", [0.0, 0.0]
        folder.mkdir()
        held: dict[str, set[str]] = {"me/whole": set(), "me/appended": set()}
        for push in range(options.pushes):
            with (folder / "rank000-00000.jsonl").open("a") as file:
                for number in range(push * options.rollouts, (push + 1) * options.rollouts):
                    file.write(json.dumps(to_row(rollout(number))) + "\n")
            cells = []
            for place, repo in enumerate(held):
                begun = time.process_time()
                if repo == "me/whole":
                    publish(where, repo, trace_tables(lambda: read_rollouts(folder, Counter())), CARD)
                else:
                    publish_rollouts(where, repo, folder, run_id="r", license="mit")
                seconds = time.process_time() - begun
                files = where.files(repo, "main")
                new = sum(entry.num_bytes for entry in files.values() if entry.digest not in held[repo]) / 1000
                held[repo] |= {entry.digest for entry in files.values()}
                totals[place] += new
                cells += [f"{new:,.0f}", f"{seconds:.1f}"]
            print(f"| {push + 1} | {(push + 1) * options.rollouts:,} | {' | '.join(cells)} |", flush=True)
    print(f"| all | | {totals[0]:,.0f} | | {totals[1]:,.0f} | |")


if __name__ == "__main__":
    main()
