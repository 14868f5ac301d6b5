"""Measure memory and CPU of `pairs build`: votes in a ledger and streamed traces in, a published pair set out.

    python benchmarks/pair_memory.py [--pairs 20000] [--way stream|lists|both]

Every step of every trace has two teachers who agree against the student, so each step gives a pair. The way `lists`
keeps whole prompts and all rows in memory, as the command once did. Each way runs in its own process. Prints Markdown.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

HEAD = "| way | pairs | peak memory, MB | CPU s |\n| --- | ---: | ---: | ---: |"
NUM_STEPS = 50
RESULT = "def answer(value):\n    return value + 42  # the same for everyone\n" * 40  # about 2,700 characters


def traces(num_pairs: int) -> Iterator:
    from composer_hub.records import Message, Step, ToolCall, Trace

    for number in range(-(-num_pairs // NUM_STEPS)):
        messages = [Message("system", "You code."), Message("user", f"Fix bug {number}.")]
        steps = []
        for at in range(NUM_STEPS):
            call = ToolCall("Bash", {"command": f"pytest tests/test_{at}.py -k case_{number}"}, f"c{at}")
            steps.append(Step(f"{number}.{at}", at, len(messages), ((0, len(messages)),), (), family="student"))
            messages += [Message("assistant", "", (call,)), Message("tool", RESULT + str(at), tool_call_id=f"c{at}")]
        yield Trace(f"t{number}", "claude_code", f"t{number}", tuple(messages), tuple(steps), cwd="/repo")


def votes(num_pairs: int) -> Iterator:
    from composer_hub.records import Vote

    for trace in traces(num_pairs):
        for step in trace.steps:
            function = {"name": "Read", "arguments": f'{{"file_path": "src/{step.index}.py"}}'}
            answer = {"role": "assistant", "content": "I look first.",
                      "tool_calls": [{"id": "x", "type": "function", "function": function}]}  # fmt: skip
            for name in ("one", "two"):
                yield Vote(f"{step.step_id}.{name}", trace.trace_id, step.step_id, step.index, name, name, "voted",
                           answer, "", cost_usd=0.001, usage={"prompt_tokens": 9000})  # fmt: skip


def build(way: str, num_pairs: int, folder: Path) -> None:
    """Build and publish the pairs, and print peak memory, CPU seconds and the number of pairs."""
    from composer_hub import hub, pairs
    from composer_hub.pairs.consensus import build_pairs
    from composer_hub.pairs.rows import PairOptions
    from composer_hub.pairs.tables import pairs_table

    recorded = pairs.RecordedVotes(folder)
    where = hub.FolderDestination(folder / way)
    if way == "stream":
        draft = pairs.draft(pairs.make(traces(num_pairs), recorded), "pairs")
        tables, card = draft.tables, draft.card
    else:
        made = [
            pair for trace in traces(num_pairs)
            for pair in build_pairs(trace, recorded.of(trace.trace_id), options=PairOptions(max_tokens=0))[0]
        ]  # fmt: skip
        tables = [pairs_table(made, {pair.trace_id: "train" for pair in made})]
        card = hub.Card("pairs", "pairs", license="mit", holes={"policy": "", "report": ""})
    hub.publish(where, "me/pairs", tables, card)
    print_row(way, hub.load(where, "me/pairs").num_rows("default"))


def print_row(way: str, count: int) -> None:
    """Print what this process has used to make its pairs."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"| {way} | {count:,} | {peak:,.0f} | {time.process_time():,.0f} |", flush=True)


def read_options(description: str) -> argparse.Namespace:
    """Read the options of a benchmark whose ways run in their own processes, which are given a folder."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--way", choices=("stream", "lists", "both"), default="both")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = read_options(__doc__.split("\n")[0])
    if options.folder:
        build(options.way, options.pairs, options.folder)
        return
    from composer_hub.pairs.policy import Policy, Poll
    from composer_hub.pairs.votes import VOTES_FILE, save_votes

    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Poll("all", ("one", "two"), Policy()).write(folder)
        save_votes(folder / VOTES_FILE, votes(options.pairs))
        for way in ("stream", "lists") if options.way == "both" else (options.way,):
            command = [sys.executable, __file__, "--way", way, "--pairs", str(options.pairs), "--folder", name]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
