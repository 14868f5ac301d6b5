"""Let people or models who do not know the rules judge error sites and hints of real sessions.

    python -m benchmarks.hints sample out/a sessions/ [more/] --seed 1     # writes out/a/items-*.md and out/a/key.json
    python -m benchmarks.hints score out/a judge_1.jsonl judge_2.jsonl     # verdicts of one or more judges
    python -m benchmarks.hints margin sessions/ [more/] MODEL              # what the hints do to a model

`sample` draws three kinds of items: sites that are blamed on the model, with their hint; other sites; and results
without a site, half of which have words of failure. An item shows what happened before and after. A verdict is one line
of JSON per item: {"id", "failed", "fault", "kind", "hint"}. `score` prints what share of blames and hints is right,
estimates the recall from the weights of the drawn results, and compares the judges.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import hint_margin
from composer_hub.actions.action import Actions, actions_of
from composer_hub.errors.context import steps_after
from composer_hub.errors.find import find_errors
from composer_hub.errors.vocabulary import KINDS
from composer_hub.hints.writers import write_hints
from composer_hub.ingest.reading import Reading, ReadOptions
from composer_hub.records import Trace, canonical_json

PER_SESSION = 6  # items of one kind, so that no session decides a figure
PER_FILE = 30
FAILURE = re.compile(
    r"(?i)error|fail|exception|traceback|not found|no such|cannot|can't|unable|denied|invalid|unknown|usage:|panic"
    r"|fatal|refused|rejected|missing|undefined|warning|conflict"
)
RUNS_CHECK = re.compile(
    r"\b(?:pytest|test|jest|vitest|cargo|go|tsc|eslint|ruff|mypy|lint|make|build|gradle|mvn|phpunit)\b"
)

MIN_STEPS, MAX_STEPS = 12, 70  # of a session that is read as a whole

Item = dict[str, Any]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    sample = commands.add_parser("sample")
    sample.add_argument("out", type=Path)
    sample.add_argument("paths", nargs="+")
    sample.add_argument("--seed", type=int, default=1)
    sample.add_argument("--hints", type=int, default=140)
    sample.add_argument("--others", type=int, default=30)
    sample.add_argument("--quiet", type=int, default=90)
    sample.add_argument("--sessions", type=int, default=0, help="Whole sessions, to estimate the recall (0).")
    score = commands.add_parser("score")
    score.add_argument("out", type=Path)
    score.add_argument("verdicts", nargs="+", type=Path)
    margin = commands.add_parser("margin")
    margin.add_argument("paths", nargs="+")
    margin.add_argument("model", help="A local folder or a model of the Hub.")
    margin.add_argument("--writers", default="hindsight,quoted", help="In order; the first hint is measured.")
    margin.add_argument("--sites", type=int, default=60)
    margin.add_argument("--seed", type=int, default=1)
    margin.add_argument("--out", type=Path, help="A file for one line of JSON per site.")
    args = parser.parse_args()
    if args.command == "sample":
        write_sample(args.out, args.paths, args.seed, (args.hints, args.others, args.quiet), args.sessions)
    elif args.command == "margin":
        hint_margin.run(args.paths, args.model, args.writers, args.sites, args.seed, args.out)
    else:
        print_score(args.out, args.verdicts)


# ------------------------------------------------------------------------------------------------------- the sample


def write_sample(out: Path, paths: Sequence[str], seed: int, sizes: tuple[int, int, int], num_whole: int) -> None:
    """Draw items and whole sessions, and write them for a judge, apart from the key."""
    whole: list[Trace] = []
    drawn: dict[str, list[Item]] = defaultdict(list)
    totals: Counter[str] = Counter()
    for session in Reading(paths, ReadOptions()):
        trace = write_hints(find_errors(session))
        totals["sessions"] += 1
        if MIN_STEPS <= len(trace.steps) <= MAX_STEPS:
            whole.append(trace)
        totals["steps"] += len(trace.steps)
        totals[f"sessions of {trace.source}"] += 1
        of_trace: dict[str, list[Item]] = defaultdict(list)
        for item in _items(trace):
            totals[item["stratum"]] += 1
            totals[f"{item['stratum']}: {item['kind']}"] += bool(item["kind"])
            of_trace[item["stratum"]].append(item)
        chance = random.Random(f"{seed} {trace.trace_id}")
        for stratum, items in of_trace.items():
            drawn[stratum].extend(chance.sample(items, min(len(items), PER_SESSION)))
    chance = random.Random(seed)
    num_hints, num_others, num_quiet = sizes
    wanted = {"hint": num_hints, "no hint": num_hints // 7, "other": num_others}
    wanted |= {"quiet words": num_quiet // 2, "quiet check": num_quiet // 3, "quiet": num_quiet // 6}
    chosen = [
        item for name, count in wanted.items() for item in chance.sample(drawn[name], min(count, len(drawn[name])))
    ]
    chance.shuffle(chosen)
    out.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(chosen), PER_FILE):
        texts = []
        for number, item in enumerate(chosen[start : start + PER_FILE], start=start + 1):
            item["id"] = f"{number:03}"
            texts.append(f"# Item {item['id']}\n\n{item.pop('text')}")
        (out / f"items-{start // PER_FILE + 1}.md").write_text("\n\n".join(texts), encoding="utf-8")
    calls: list[Item] = []
    for number, trace in enumerate(chance.sample(whole, min(num_whole, len(whole))), start=1):
        text, keys = _whole(trace, f"S{number:02}")
        (out / f"session-{number:02}.md").write_text(text, encoding="utf-8")
        calls.extend(keys)
    key = {"totals": totals, "items": chosen, "calls": calls}
    (out / "key.json").write_text(json.dumps(key, indent=1), encoding="utf-8")
    print(json.dumps(totals, indent=1))


def _items(trace: Trace) -> Iterator[Item]:
    """Yield an item per error site and per result without one."""
    actions = actions_of(trace)
    for position, step in enumerate(trace.steps):
        hints = {(hint.kind, hint.call_id): hint for hint in step.hints}
        failed = {site.call_id for site in step.error_sites}
        for site in step.error_sites:
            hint = hints.get((site.kind, site.call_id))
            stratum = "other" if site.blame != "model" else "hint" if hint else "no hint"
            yield {
                "stratum": stratum, "kind": site.kind, "blame": site.blame, "rule": site.rule, "source": trace.source,
                "hint": hint.text if hint else "", "writer": f"{hint.writer}.{hint.rule}" if hint else "",
                "session": trace.session_id, "step": position,
                "text": _shown(trace, actions, position, site.call_id, hint.text if hint else ""),
            }  # fmt: skip
        for outcome in actions[step.index]:
            if outcome.content is None or outcome.call.call_id in failed:
                continue
            is_shell = outcome.family in ("shell", "poll")
            checks = is_shell and bool(RUNS_CHECK.search(outcome.command))
            says = (is_shell or len(outcome.content) < 600) and bool(FAILURE.search(outcome.content))
            stratum = "quiet" if not says else "quiet check" if checks else "quiet words"
            yield {
                "stratum": stratum, "kind": "", "blame": "", "rule": "", "source": trace.source, "hint": "",
                "writer": "", "session": trace.session_id, "step": position,
                "text": _shown(trace, actions, position, outcome.call.call_id, ""),
            }  # fmt: skip


def _shown(trace: Trace, actions: Actions, position: int, call_id: str, hint: str) -> str:
    """Return the raw context of a call: what came before, the call with its result, and what followed."""
    step = trace.steps[position]
    read = [index for start, stop in step.prompt for index in range(start, stop)]
    users = [trace.messages[index].content for index in read if trace.messages[index].role == "user"]
    asked = next((text for text in reversed(users) if not text.lstrip().startswith("<")), "")
    earlier = [one for one in trace.steps[:position] if one.action in set(read)][-4:]
    parts = [f"Harness: {trace.source}. Working directory at the start: {trace.cwd or 'not recorded'}."]
    parts.append(f"## The user's last words\n{_clip(asked, 300)}")
    parts.append("## Before\n" + "\n".join(_step_text(trace, actions, one, 250, 200) for one in earlier))
    parts.append("## The message that is judged\n" + _step_text(trace, actions, step, 1200, 1500, call_id))
    later = [one for _, one in zip(range(4), steps_after(trace, position), strict=False)]
    parts.append("## After\n" + "\n".join(_step_text(trace, actions, one, 350, 250) for one in later))
    if hint:
        parts.append(f"## The hint, as if it had been given before this message\n{hint}")
    return "\n\n".join(parts)


def _whole(trace: Trace, name: str) -> tuple[str, list[Item]]:
    """Return a session as a numbered list of its calls, and what the rules say of each."""
    lines, keys = [f"# Session {name} ({trace.source})"], []
    actions = actions_of(trace)
    for step in trace.steps:
        sites = {site.call_id: site for site in reversed(step.error_sites)}
        if said := trace.messages[step.action].content:
            lines.append(f"[model says] {_clip(said, 160)}")
        for outcome in actions[step.index]:
            site = sites.get(outcome.call.call_id)
            place = f"{name}.{len(keys) + 1}"
            arguments = outcome.call.arguments
            text = arguments if isinstance(arguments, str) else canonical_json(arguments)
            shown = "(no result)" if outcome.content is None else _clip(outcome.content, 600)
            lines.append(f"[{place}] {outcome.call.name} {_clip(text, 420)}\n[result] {shown}")
            keys.append({"id": place, "kind": site.kind if site else "", "blame": site.blame if site else ""})
    return "\n\n".join(lines), keys


def _step_text(trace: Trace, actions: Actions, step: Any, call_chars: int, result_chars: int, judged: str = "") -> str:
    lines = []
    if said := trace.messages[step.action].content:
        lines.append(f"[model says] {_clip(said, 200)}")
    outcomes = actions[step.index]
    for outcome in outcomes if judged else outcomes[:3]:
        mark = " <<< THE CALL TO JUDGE" if judged and outcome.call.call_id == judged else ""
        few = 1 if mark or not judged else 10  # neighbors of the judged call matter less
        arguments = outcome.call.arguments
        text = arguments if isinstance(arguments, str) else canonical_json(arguments)
        lines.append(f"[call] {outcome.call.name} {_clip(text, call_chars // few)}{mark}")
        shown = "(no result)" if outcome.content is None else _clip(outcome.content, result_chars // few)
        lines.append(f"[result] {shown}")
    return "\n".join(lines)


def _clip(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    return f"{text[: chars * 2 // 3]}\n[… {len(text) - chars:,} characters …]\n{text[-chars // 3 :]}"


# -------------------------------------------------------------------------------------------------------- the score


def print_score(out: Path, paths: Sequence[Path]) -> None:
    """Print the figures of each judge, of the two together, and how often the judges agree."""
    key = json.loads((out / "key.json").read_text(encoding="utf-8"))
    items = {item["id"]: item for item in key["items"]}
    judges = []
    for path in paths:
        lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
        judges.append({one["id"] if "." in one["id"] else f"{int(one['id']):03}": one for one in lines})
    report: dict[str, Any] = {
        path.stem: _figures(items, verdicts, key["totals"], key.get("calls", ()))
        for path, verdicts in zip(paths, judges, strict=True)
    }
    if len(judges) == 2:
        both = [name for name in items if all(name in verdicts for verdicts in judges)]
        for field in ("failed", "fault", "hint"):
            of = [name for name in both if field != "hint" or items[name]["hint"]]
            same = sum(judges[0][name].get(field) == judges[1][name].get(field) for name in of)
            report[f"agree on {field}"] = _share(same, len(of))
    print(json.dumps(report, indent=1))


def _figures(
    items: dict[str, Item], all_verdicts: dict[str, Item], totals: dict[str, int], key_calls: Sequence[Item]
) -> dict[str, Any]:
    verdicts = {name: one for name, one in all_verdicts.items() if name in items}
    blamed = [name for name in verdicts if items[name]["blame"] == "model"]
    right = [name for name in blamed if verdicts[name]["fault"] == "model"]
    hinted = [name for name in blamed if items[name]["hint"]]
    good = [name for name in hinted if verdicts[name]["hint"] == "good"]
    figures: dict[str, Any] = {"blame": _share(len(right), len(blamed)), "hints": _share(len(good), len(hinted))}
    found = {"model": (totals.get("hint", 0) + totals.get("no hint", 0)) * len(right) / max(1, len(blamed))}
    outcomes = {kind for kind, blame in KINDS.items() if blame == "outcome"}
    found["outcome"] = float(sum(totals.get(f"other: {kind}", 0) for kind in outcomes))
    missed: dict[str, float] = defaultdict(float)
    for stratum in ("other", "quiet words", "quiet check", "quiet"):
        names = [name for name in verdicts if items[name]["stratum"] == stratum]
        weight = totals.get(stratum, 0) / max(1, len(names))
        for name in names:
            fault = verdicts[name]["fault"]
            if fault == "model" or (fault == "outcome" and stratum != "other"):
                missed[fault] += weight
    for fault, count in found.items():
        figures[f"recall of {fault}"] = (
            f"{count / max(1.0, count + missed[fault]):.1%} ({count:.0f} found, {missed[fault]:.0f} missed, estimated)"
        )
    calls = {one["id"]: one for one in key_calls}
    for fault in ("model", "outcome"):
        read = [name for name, one in all_verdicts.items() if name in calls and one.get("fault") == fault]
        seen = [name for name in read if calls[name]["blame"] == fault]
        marked = [name for name in read if calls[name]["blame"]]
        figures[f"recall of {fault} in whole sessions"] = (
            f"{_share(len(seen), len(read))}; {len(marked)} have some site"
        )
        figures[f"missed {fault}"] = sorted(set(read) - set(seen))
    figures["wrong blames"] = sorted(set(blamed) - set(right))
    figures["wrong hints"] = sorted(set(hinted) - set(good))
    return figures


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / max(1, whole):.1%})"


if __name__ == "__main__":
    main()
