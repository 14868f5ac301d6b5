"""`composer-hub replay`: plan, run and look at a replay of traces by teachers.

A run is a folder: `ledger.sqlite` (every call, paid once) and `votes.jsonl` (one row an answer, written anew by each
run from what the ledger holds and what is asked on top).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.cli.options import to_option
from composer_hub.cli.policy import policy_options
from composer_hub.money import cap_of, show_usd, to_usd
from composer_hub.output import Output
from composer_hub.pairs.policy import Policy, Poll
from composer_hub.records import Trace, from_row, to_row

if TYPE_CHECKING:
    from composer_hub.replay.cascade import Rules
    from composer_hub.replay.lanes import Progress
    from composer_hub.replay.run import Plan, Report
    from composer_hub.replay.teachers import Teacher


@click.group()
def replay() -> None:
    """Ask several teachers what they would have done at each step of recorded traces."""


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _options(*decorators: Any) -> Any:
    """Fold several options into one decorator."""

    def give(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return give


teacher_options = _options(
    click.option("--teachers", "names", default="",
                 help="hf:org/model:provider, openrouter:vendor/model, URL#model; comma-separated."),
    click.option("--teachers-file", type=_FILE, help="YAML, TOML or JSON."),
    click.option("--price", "given", multiple=True, metavar="NAME=IN/OUT[/CACHED[/WRITE]]",
                 help="Dollars per million tokens."),
    click.option("--accept-terms", "accepted", multiple=True, metavar="NAME",
                 help="You may train on this teacher's answers."),
    click.option("--max-tokens", type=click.IntRange(min=1), help="Of one answer, thinking included."),
)  # fmt: skip

trace_options = _options(
    click.argument("traces", required=False),
    to_option,
    click.option("--traces-file", type=_FILE, help="JSONL rows instead."),
)  # fmt: skip

rule_options = _options(
    click.option("--policy", type=click.Choice(["cascade", "sequential", "all"]), default="cascade", show_default=True,
                 help="Order in which teachers are asked."),
    policy_options,
    click.option("--audit", type=click.FloatRange(0, 1), default=0.03, show_default=True,
                 help="Share of steps asked on although the policy would stop."),
    click.option("--repeat", type=click.FloatRange(0, 1), default=0.02, show_default=True,
                 help="Share of steps on which the first teacher is asked twice."),
    click.option("--entropy", type=_FILE, help="JSONL of {step_id, entropy} of the student."),
    click.option("--entropy-top", type=click.FloatRange(0, 1, min_open=True),
                 help="Ask only this share of the steps, by entropy; the audit measures what that misses."),
)  # fmt: skip

run_option = click.option(
    "--run",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("replay-run"),
    show_default=True,
    help="Folder of the run: its ledger and votes.",
)


@replay.command()
@trace_options
@teacher_options
@rule_options
@click.option("--max-usd", type=float, required=True, help="The cap the run would have.")
@format_option
def plan(out: Output, max_usd: float, **options: Any) -> None:
    """Print what a run would ask and cost; nothing is sent but the request for the price list."""
    from composer_hub.replay.run import plan as make_plan

    rules, teachers = rules_from(options), teachers_from(options)
    found = make_plan(traces_from(options), teachers, rules)
    cap = cap_of(max_usd)
    found.check(cap)
    out.table(_plan_rows(found), id_key="teacher")
    _say_too_few(out, rules, teachers)
    out.note(
        f"{found.num_traces:,} traces, {found.num_steps:,} steps, policy {rules.policy}: "
        f"about {show_usd(found.expected)} expected, {show_usd(found.worst)} at worst, cap {show_usd(cap)}."
    )
    for reason, count in found.excluded.items():
        out.note(f"Left out, {reason}: {count:,} (step, teacher) pairs.")
    if found.expected > cap:
        out.note("The cap will not cover all: errors, first steps and edits are asked first.")
    _say_server_cap(out, teachers)


@replay.command()
@trace_options
@teacher_options
@rule_options
@click.option(
    "--max-usd", type=float, required=True, help="Hard cap of this run folder, over all its processes and restarts."
)
@click.option("--change-cap", is_flag=True, help="Give an existing run the new cap.")
@click.option("--i-own-this-endpoint", is_flag=True, help="Send unredacted traces; loopback URLs only.")
@run_option
@format_option
def run(out: Output, max_usd: float, change_cap: bool, i_own_this_endpoint: bool, folder: Path, **options: Any) -> None:
    """Ask the teachers; running the same command again goes on and pays nothing twice."""
    from composer_hub.replay.judging import by_normal_form
    from composer_hub.replay.ledger import Ledger
    from composer_hub.replay.run import Report, check_endpoints
    from composer_hub.replay.run import plan as make_plan
    from composer_hub.replay.run import run as ask

    rules, teachers, traces = rules_from(options), teachers_from(options), traces_from(options)
    check_endpoints(teachers, i_own_this_endpoint)
    cap = cap_of(max_usd)
    found = make_plan(traces, teachers, rules)
    found.check(cap)
    _say_too_few(out, rules, teachers)
    folder.mkdir(parents=True, exist_ok=True)
    report, poll = Report(), Poll(rules.policy, tuple(teacher.name for teacher in teachers), rules.agreement)
    with Ledger(folder / "ledger.sqlite", cap=cap, change_cap=change_cap) as ledger:
        _say_changed_prices(out, ledger, teachers)
        with out.progress("asking", sum(teacher.num_expected for teacher in found.teachers)) as bar:
            votes = ask(
                traces, teachers, ledger, by_normal_form, rules,
                own_endpoint=i_own_this_endpoint, report=report, on_progress=_shown(bar),
            )  # fmt: skip
            try:
                num_votes = write_votes(folder / "votes.jsonl", votes, poll)
            except exits.Stopped:
                _summary(out, folder, report, ledger.money(), _num_lines(folder / "votes.jsonl"))
                raise
        _summary(out, folder, report, ledger.money(), num_votes)
    if options["traces"]:
        to = "" if options["to"] == "local" else f" --to {options['to']}"
        out.note(f"Make pairs of them: composer-hub pairs build {options['traces']} --run {folder}{to} --repo ME/PAIRS")


@replay.command()
@run_option
@format_option
def status(out: Output, folder: Path) -> None:
    """Show what a run has asked and spent."""
    from composer_hub.replay.ledger import Ledger

    path = folder / "ledger.sqlite"
    if not path.exists():
        raise exits.NothingToDo(f"{folder} holds no run yet. Start one with: composer-hub replay run … --run {folder}")
    with Ledger(path) as ledger:
        rows, money = ledger.by_teacher(), ledger.money()
    for row in rows:
        row["cached_share"] = row["cached_tokens"] / row["prompt_tokens"] if row["prompt_tokens"] else 0.0
        row["spent_usd"], row["ambiguous_usd"] = to_usd(row.pop("spent")), to_usd(row.pop("ambiguous"))
        del row["prompt_tokens"], row["cached_tokens"]
    out.table(rows, id_key="teacher", empty="Nothing was asked yet.")
    out.note(f"{money}; {show_usd(max(money.left, 0))} left.")


# ------------------------------------------------------------------------------------------------------ from options


def traces_in(path: Path) -> Iterator[Trace]:
    """Yield the traces of a JSONL file of rows."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _trace(path, number, line)


def _trace(path: Path, number: int, line: bytes) -> Trace:
    try:
        return from_row(Trace, orjson.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise exits.UsageError(
            f"{path}:{number} is no trace row ({error}). Name a version instead (REPO@REV); ingest makes it."
        ) from None


class _TraceFile:
    """The traces of a file, read anew each time they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Trace]:
        return traces_in(self.path)


class _Published:
    """The traces of a published version, pinned to its commit and streamed anew each time."""

    def __init__(self, to: str, ref: str) -> None:
        from composer_hub.hub import destination, load

        self.version = load(destination(to), ref)

    def __iter__(self) -> Iterator[Trace]:
        return self.version.records(Trace, "traces")


def traces_from(options: dict[str, Any]) -> Any:
    """Return the traces that were named, as something that can be read more than once."""
    if options.get("traces_file"):
        return _TraceFile(options["traces_file"])
    if not options.get("traces"):
        raise exits.UsageError("Name the traces: a dataset (me/traces@v1.0.0) or --traces-file FILE.")
    return _Published(options["to"], options["traces"])


def teachers_from(options: dict[str, Any]) -> list[Teacher]:
    """Return the teachers that were named, with prices and terms from their endpoints."""
    from composer_hub.replay import prices
    from composer_hub.replay import teachers as known

    specs = (
        known.read_file(options["teachers_file"]) if options["teachers_file"] else known.parse_names(options["names"])
    )
    if options["max_tokens"]:
        specs = [{**spec, "max_tokens": options["max_tokens"]} for spec in specs]
    given = prices.parse_given(options["given"], today=date.today().isoformat())
    return known.resolve(specs, list_models=known.fetch_models, given=given, accepted=options["accepted"])


def rules_from(options: dict[str, Any]) -> Rules:
    """Return the rules that were asked for."""
    from composer_hub.replay.cascade import Rules

    entropy = _entropy(options["entropy"]) if options["entropy"] else {}
    if options["entropy_top"] and not entropy:
        raise exits.UsageError("--entropy-top needs --entropy FILE.")
    return Rules(
        policy=options["policy"],
        audit=options["audit"],
        repeat=options["repeat"],
        agreement=Policy(**options["policy_changes"]),
        entropy=entropy,
        min_entropy=_quantile(entropy, options["entropy_top"]) if options["entropy_top"] else None,
    )


def _entropy(path: Path) -> dict[str, float]:
    entropy = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            entropy[str(row["step_id"])] = float(row["entropy"])
        except (ValueError, KeyError, TypeError):
            raise exits.UsageError(f"{path}:{number} must be an object with step_id and entropy.") from None
    return entropy


def _quantile(entropy: dict[str, float], top: float) -> float:
    ordered = sorted(entropy.values(), reverse=True)
    return ordered[min(int(len(ordered) * top), len(ordered) - 1)]


# ----------------------------------------------------------------------------------------------------------- showing


def write_votes(path: Path, votes: Iterator[Any], poll: Poll) -> int:
    """Write votes as JSONL rows (up to where a run stops early) with the poll beside them; return how many."""
    partial = path.with_suffix(".partial")
    count = 0
    try:
        with partial.open("wb") as file:
            for vote in votes:
                file.write(orjson.dumps(to_row(vote)) + b"\n")
                count += 1
    except OSError as error:
        if isinstance(error, exits.ComposerError):
            raise
        raise exits.ComposerError(
            f"{partial} cannot be written ({error.strerror}). The answers are in the ledger."
        ) from error
    finally:
        if partial.exists():
            poll.write(path.parent)
            os.replace(partial, path)
    return count


def _plan_rows(found: Plan) -> list[dict[str, Any]]:
    return [
        {
            "teacher": part.teacher.name,
            "family": part.teacher.family,
            "steps": part.num_steps,
            "expected_steps": part.num_expected,
            "prompt_tokens": part.prompt_tokens,
            "worst_usd": to_usd(part.worst),
            "uncached_usd": to_usd(part.uncached),
            "in_order_usd": to_usd(part.in_order),
            "expected_usd": to_usd(part.expected),
            "price_stamp": part.teacher.price.stamp,
        }
        for part in found.teachers
    ]


def _shown(bar: Any) -> Callable[[Progress], None]:
    def advance(progress: Progress) -> None:
        bar.advance(
            progress.num_asked - bar.done,
            spent=show_usd(progress.spent),
            cached=f"{progress.cached_share:.0%}",
            pairs=progress.num_pairs,
        )

    return advance


def _num_lines(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for _ in lines)


def _summary(out: Output, folder: Path, report: Report, money: Any, num_votes: int) -> None:
    for note in report.notes:
        out.note(note)
    progress, tally = report.progress, report.tally
    out.record(
        {
            "run": str(folder),
            "votes": num_votes,
            "traces": progress.num_traces,
            "steps": tally.num_steps,
            "pairs": tally.num_pairs,
            "requests": progress.num_requests,
            "cached_share": round(progress.cached_share, 4),
            "settled_usd": to_usd(money.settled),
            "ambiguous_usd": to_usd(money.ambiguous),
            "cap_usd": to_usd(money.cap),
            "audited_steps": tally.num_audited,
            "recall_of_pairs": tally.recall,
        },
        id_key="run",
    )


def _say_changed_prices(out: Output, ledger: Any, teachers: list[Teacher]) -> None:
    for teacher in teachers:
        before = ledger.note_price(teacher.route, teacher.price)
        if before:
            old, new = before["rates"], teacher.price.rates
            out.note(
                f"{teacher.name}: the price changed since the last run, input {old['input'] / 1e6:g} to "
                f"{new.input / 1e6:g}, output {old['output'] / 1e6:g} to {new.output / 1e6:g} dollars per million "
                "tokens. New calls are reserved at the new price; `replay plan` shows what is ahead."
            )


def _say_too_few(out: Output, rules: Rules, teachers: list[Teacher]) -> None:
    if len(teachers) < rules.agreement.min_agree:
        out.note(f"No step can give a pair: {rules.agreement.min_agree} teachers must agree, {len(teachers)} named.")


def _say_server_cap(out: Output, teachers: list[Teacher]) -> None:
    for provider in {teacher.provider for teacher in teachers}:
        if provider.cap_advice:
            out.note(provider.cap_advice)
