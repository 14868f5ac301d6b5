"""Executed pairs on tasks of a real package: what the tests say about scripted actions, and what a pair costs.

python -m benchmarks.executed_pairs inflection --tasks 8
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from composer_hub import tasks
from composer_hub.environments import TaskShelf, coding_factory, execute_pairs
from composer_hub.environments.venvs import venv_for
from composer_hub.records import Message, Pair, Step, Task, ToolCall, Trace, stable_id

Action = tuple[str, dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    made = tasks.make(
        [options.package], tasks.TaskOptions(kinds=("stub",), max_per_kind=options.tasks, recheck_every=0)
    )
    with tempfile.TemporaryDirectory(prefix="composer-benchmark-") as folder:
        bundles = {one.digest: Path(folder, f"{one.digest}.tar.gz") for one in made.bundles}
        for one in made.bundles:
            bundles[one.digest].write_bytes(one.data)
        venvs: dict[str, Path | None] = {one.digest: venv_for(one.requirements) for one in made.bundles}
        shelf = TaskShelf({one.task_id: one for one in made.tasks}, bundles, venvs, made.oracles)
        play = coding_factory(shelf)
        traces, pairs, wanted = [], list[Pair](), list[str]()
        for task in made.tasks:
            trace = rollout(task, play())
            traces.append(trace)
            for verdict, number, chosen, rejected in cases(task):
                pairs.append(pair(trace, number, chosen, rejected))
                wanted.append(verdict)
        print(json.dumps({"tasks": len(made.tasks), "with_oracle": len(made.oracles), "pairs": len(pairs)}))
        if not pairs:
            raise SystemExit(f"{options.package} gave no task.")
        for name in ("with the oracles", "without them"):
            shelf = shelf if name == "with the oracles" else dataclasses.replace(shelf, oracles={})
            begun = time.monotonic()
            found = execute_pairs(pairs, traces, shelf, workers=options.workers)
            print(json.dumps({
                "judged": name,
                "wall_s_per_pair": round((time.monotonic() - begun) / len(pairs), 3),
                "as_wanted": sum(one.verdict == verdict for one, verdict in zip(found, wanted, strict=True)),
                "verdicts": Counter(f"{verdict} -> {one.verdict}" for one, verdict in zip(found, wanted, strict=True)),
            }))  # fmt: skip


def rollout(task: Task, environment: Any) -> Trace:
    """Play a rollout that looks, makes a wrong edit, tests it, and ends with the solution."""
    environment.reset(task_id=task.task_id)
    messages, steps = [Message("user", task.statement)], []
    for number, (tool, arguments) in enumerate(script(task)):
        result, place = getattr(environment, tool)(**arguments), len(messages)
        messages += [called((tool, arguments), number), Message("tool", result, (), f"c{number}", tool)]
        steps.append(Step(stable_id(task.task_id, number), number, place, ((0, place),), (place + 1,)))
    assert environment.get_reward() == 1.0, task.task_id
    return Trace(task.task_id, "scripted", "", tuple(messages), tuple(steps),
                 provenance={"episode": environment._facts()})  # fmt: skip


def script(task: Task) -> list[Action]:
    path = task.solution[0].path
    return [
        ("run", {"command": "ls"}),
        ("search", {"pattern": "NotImplementedError", "path": path}),
        ("write_file", {"path": path, "text": returning(task, "None")}),
        ("run_tests", {}),
        ("write_file", {"path": path, "text": task.solution[0].text}),
    ]


def cases(task: Task) -> list[tuple[str, int, Action, Action]]:
    """Return pairs with the verdict that their author expects: step, the teachers' action, the student's action."""
    path, steps = task.solution[0].path, script(task)
    gold, wrong = steps[4], ("write_file", {"path": path, "text": returning(task, '"wrong"')})
    return [
        ("chosen", 2, gold, steps[2]),
        ("rejected", 4, wrong, gold),
        ("tie", 4, ("read_file", {"path": path}), gold),
        ("equal", 4, (gold[0], gold[1] | {"text": f"{gold[1]['text']}\n# The same.\n"}), gold),
    ]


def returning(task: Task, value: str) -> str:
    """Return the emptied file with a function that returns one value."""
    (text,) = [edit.text for edit in task.edits if edit.path == task.solution[0].path]
    return re.sub(r"raise NotImplementedError\b(?:\([^)]*\))?", f"return {value}", text or "", count=1)


def called(action: Action, number: int = 0) -> Message:
    return Message("assistant", "", (ToolCall(*action, call_id=f"c{number}"),))


def pair(trace: Trace, number: int, chosen: Action, rejected: Action) -> Pair:
    step = trace.steps[number].step_id
    return Pair(
        stable_id(step, chosen, rejected), trace.trace_id, step, number, len(trace.steps), (), (called(chosen),),
        (called(rejected),), (), "L2", 2, 2, (), (), (), "scripted", "", "",
    )  # fmt: skip


if __name__ == "__main__":
    main()
