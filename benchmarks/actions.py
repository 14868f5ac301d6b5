"""Measure the speed of normal forms, and the false and lost pairs under each rule of comparison.

    python benchmarks/actions.py [--steps 3000] [--sessions FOLDER]

Every step has a student and three teachers. Each means one of a few actions and may spell it in several ways. A pair is
false if chosen and rejected mean the same. It is lost if two teachers mean the same and the student does not, but no
pair comes out. The veto is also measured on pairs of actions that were written and judged by hand. With `--sessions`,
only steps of real sessions are measured: two teachers spell the student's action in another way, or take the action of
a later step. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from composer_hub.actions.context import contexts
from composer_hub.actions.forms import LEVELS, ActionContext, NormalForm, is_part_of, normalize, same
from composer_hub.actions.tools import known_tool
from composer_hub.ingest.one_file import ReadOptions
from composer_hub.ingest.prepare import Preparation
from composer_hub.ingest.reading import Reading
from composer_hub.pairs.policy import Policy
from composer_hub.records import Message, ToolCall

CONTEXT = ActionContext(cwd="/repo", shell_cwd="/repo")
AGREEMENT = 0.75  # a teacher means the best action
STUDENT_RIGHT = 0.5
VARIATION = 0.4  # an action is spelled otherwise than its plainest spelling
JUDGED = Path(__file__).parents[1] / "tests" / "actions"
CODE = frozenset(("shell", "edit", "write", "insert", "patch", "delete"))  # kinds whose arguments are code or commands

Veto = Callable[[NormalForm, NormalForm], bool]


def strict_for_code(one: NormalForm, other: NormalForm) -> bool:
    """Compare code and commands at L2, any other call at L3."""

    def mixed(form: NormalForm) -> list[str]:
        return sorted(call[LEVELS.index("L2" if call[LEVELS.index("L4")] in CODE else "L3")] for call in form.calls)

    return mixed(one) == mixed(other)


VETOES: dict[str, Veto] = {
    "L0": lambda one, other: same(one, other, "L0"),
    "L1": lambda one, other: same(one, other, "L1"),
    "L2": lambda one, other: same(one, other, "L2"),
    "L2 for code and commands, else L3": strict_for_code,
    "L3 and the same words (default)": lambda one, other: bool(Policy().veto(one, other)),
    "L3": lambda one, other: same(one, other, "L3"),
}

Spelling = Callable[[random.Random], tuple[str, dict[str, Any]]]


def path(file: str, rng: random.Random) -> str:
    return rng.choice([file, f"./{file}", f"/repo/{file}"])


def shell(plain: str, *others: str) -> Spelling:
    return lambda rng: ("Bash", {"command": rng.choice([plain, *others])})


def actions(file: str, word: str) -> list[list[Spelling]]:
    """Return what can be done at a step: each action a list of spellings, the plainest first."""
    return [
        [
            lambda rng: ("Read", {"file_path": file}),
            lambda rng: ("Read", {"limit": None, "file_path": path(file, rng)}),
        ],
        [
            lambda rng: ("Grep", {"pattern": word, "path": "src"}),
            lambda rng: ("Grep", {"path": path("src", rng), "pattern": word, "-n": True}),
        ],
        [
            shell(f"grep -rn {word} src"),
            shell(f"grep -nr '{word}' ./src", f'grep -r -n "{word}" /repo/src', f"cd /repo && grep -rn {word} src"),
        ],
        [shell(f"pytest -xq {file}"), shell(f"pytest -x -q ./{file}", f"cd /repo && pytest -q -x {file}")],
        [shell(f"rm -rf {word}"), shell(f"rm -r -f ./{word}", f"rm --force --recursive /repo/{word}")],
        [
            shell(f"git log -n 5 --oneline {word}"),
            shell(f"git log --oneline -5 {word}", f"git  log -n5 --oneline {word}"),
        ],
        [
            lambda rng: ("Edit", {"file_path": file, "old_string": word, "new_string": "new"}),
            lambda rng: (
                "Edit",
                {"new_string": "new", "old_string": word, "file_path": path(file, rng), "replace_all": False},
            ),
        ],
        # Close to another action, but not the same.
        [
            lambda rng: ("Read", {"file_path": file, "offset": 40}),
            lambda rng: ("Read", {"offset": 40, "file_path": f"./{file}"}),
        ],
        [shell(f"rm -r f/{word}"), shell(f"rm  -r ./f/{word}")],
        [shell(f"git log -n 50 --oneline {word}"), shell(f"git log --oneline -50 {word}")],
    ]


def spelled(meant: Sequence[Spelling], rng: random.Random) -> NormalForm:
    varied = rng.random() < VARIATION
    name, arguments = meant[varied and rng.random() < 0.6](rng)
    # The rest of the variation is in the JSON alone: its spaces and the order of its keys.
    text = json.dumps(dict(reversed(arguments.items())), indent=1) if varied else json.dumps(arguments)
    return normalize(Message("assistant", "", (ToolCall(name, text),)), CONTEXT)


def step(rng: random.Random) -> tuple[tuple[int, NormalForm], list[tuple[int, NormalForm]]]:
    """Return the student and the teachers of one step, each with the number of the action meant."""
    choices = actions(f"src/m{rng.randrange(50)}.py", f"word{rng.randrange(50)}")
    best = rng.randrange(len(choices))

    def mean(chance: float) -> tuple[int, NormalForm]:
        number = best if rng.random() < chance else rng.randrange(len(choices))
        return number, spelled(choices[number], rng)

    return mean(STUDENT_RIGHT), [mean(AGREEMENT) for _ in range(3)]


def judged(steps: Sequence[Any], agree: str, veto: Veto) -> tuple[int, int, int, int]:
    """Return pairs, false pairs, steps that should give a pair, and those that did."""
    made = false = due = found = 0
    for (student, student_form), teachers in steps:
        numbers = [number for number, _ in teachers]
        common = max(set(numbers), key=numbers.count)
        is_due = numbers.count(common) >= 2 and common != student
        forms = [form.at(agree) for _, form in teachers]
        best = max(forms, key=forms.count)
        number, winner = next(teacher for teacher in teachers if teacher[1].at(agree) == best)
        is_made = forms.count(best) >= 2 and not veto(winner, student_form)
        made, false = made + is_made, false + (is_made and number == student)
        due, found = due + is_due, found + (is_due and is_made and number == common)
    return made, false, due, found


def judged_sets() -> dict[str, list[dict[str, Any]]]:
    """Return the actions judged by hand, by set."""
    sets: dict[str, list[dict[str, Any]]] = {}
    for name in ("agent_actions", "judged_actions"):
        for line in (JUDGED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            sets.setdefault(case.get("set", "spellings"), []).append(case)
    return sets


def hand_made(cases: Sequence[dict[str, Any]], veto: Veto) -> tuple[int, int, int, int]:
    """Return equal actions, those that would become pairs, unequal actions, and those that would not."""
    counts: Counter[tuple[bool, bool]] = Counter()
    for case in cases:
        context = ActionContext(cwd=case["cwd"] or "", shell_cwd=case["cwd"] or "")
        one, other = (
            normalize(Message("assistant", "", tuple(ToolCall(*call) for call in case[side])), context)
            for side in ("one", "other")
        )
        too_close = veto(one, other) or is_part_of(one, other, "L3") or is_part_of(other, one, "L3")
        counts[case["same"], too_close] += 1
    return (
        counts[True, True] + counts[True, False],
        counts[True, False],
        counts[False, True] + counts[False, False],
        counts[False, True],
    )


# ------------------------------------------------------------------------------------------------------ real sessions


def respelled(call: ToolCall, style: int, cwd: str) -> ToolCall | None:
    """Return a call in one of three other spellings of certainly the same effect; None if it has none."""
    arguments = call.arguments
    if not isinstance(arguments, dict):
        return None
    if style == 0:
        plain = {**arguments, "description": "Do it."} if "description" in arguments else arguments
        return ToolCall(call.name, dict(reversed(plain.items())), call.call_id)
    known = known_tool(call.name, arguments)
    if known is None:
        return None
    kind, own = known[0].kind, known[1]
    if style == 1 and kind == "shell" and cwd and isinstance(own["command"], str) and "<<" not in own["command"]:
        name = next(name for name, value in arguments.items() if value == own["command"])
        return ToolCall(call.name, {**arguments, name: f"cd {cwd} && {own['command']}  2>&1"}, call.call_id)
    if style == 1 and kind == "edit" and {"old", "new"} <= own.keys():
        edits = [{"old_string": own["old"], "new_string": own["new"]}]
        return ToolCall("MultiEdit", {"file_path": own["path"], "edits": edits}, call.call_id)
    if style == 2 and kind == "read" and own.keys() == {"path"}:
        return ToolCall("Bash", {"command": f"cat {shlex.quote(own['path'])}"}, call.call_id)
    if style == 2 and kind == "search" and own.keys() <= {"pattern", "path"} and isinstance(own.get("path", ""), str):
        words = f"grep -rE {shlex.quote(own['pattern'])} {shlex.quote(own.get('path', '.'))}"
        return ToolCall("Bash", {"command": words}, call.call_id)
    return None


def of_sessions(folder: str) -> None:
    """Print how many steps of real sessions give a pair, with re-spelled answers and with those of a later step."""
    counts: Counter[str] = Counter()
    for session in Reading([folder], ReadOptions(transform=Preparation(None))):
        trace = session.trace
        steps = [(step, context) for step, context in contexts(trace) if trace.messages[step.action].tool_calls]
        for at, (step, context) in enumerate(steps):
            student = trace.messages[step.action]
            form = normalize(student, context)
            for style in range(3):
                calls = [respelled(call, style, context.shell_cwd) for call in student.tool_calls]
                if all(calls):
                    other = normalize(Message("assistant", "", tuple(filter(None, calls))), context)
                    counts[f"equal {style}"] += 1
                    counts[f"false {style}"] += not Policy().veto(form, other)
            if at + 3 < len(steps):
                other = normalize(trace.messages[steps[at + 3][0].action], context)
                if not same(form, other, "L1"):
                    counts["unequal"] += 1
                    counts["found"] += not Policy().veto(form, other)
    print("| answers | steps | pairs |\n| --- | ---: | ---: |")
    for style, name in enumerate(("the same, keys in another order", "the same, `cd CWD && … 2>&1` or MultiEdit",
                                  "the same by a shell command")):  # fmt: skip
        print(f"| {name} | {counts[f'equal {style}']:,} | {counts[f'false {style}']:,} |")
    print(f"| the action three steps later | {counts['unequal']:,} | {counts['found']:,} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--sessions", metavar="FOLDER")
    options = parser.parse_args()
    if options.sessions:
        of_sessions(options.sessions)
        return
    num_steps = options.steps
    rng = random.Random(0)
    started = time.process_time()
    steps = [step(rng) for _ in range(num_steps)]
    per_call = (time.process_time() - started) / (4 * num_steps)
    print("| teachers agree at | student differs at | pairs | false pairs | found of those due |")
    print("| --- | --- | ---: | ---: | ---: |")
    for name, veto in VETOES.items():
        agree = name if name in ("L0", "L1") else "L2"
        made, false, due, found = judged(steps, agree, veto)
        print(f"| {agree} | {name} | {made:,} | {false / made:.1%} | {found / due:.1%} |")
    print("\n| set | the student must differ at | equal actions made pairs | unequal actions made pairs |")
    print("| --- | --- | ---: | ---: |")
    for set_name, cases in judged_sets().items():
        for name, veto in VETOES.items():
            equal, false, unequal, lost = hand_made(cases, veto)
            print(f"| {set_name} | {name} | {false} of {equal} | {unequal - lost} of {unequal} |")
    print(f"\n{num_steps:,} steps, seed 0; {per_call * 1e6:.0f} µs of CPU for each action (made up and normalized).")


if __name__ == "__main__":
    main()
