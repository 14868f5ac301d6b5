"""`composer-hub tasks`: tested packages -> verifiable coding tasks."""

from __future__ import annotations

import os

import click

from composer_hub import exits, extras
from composer_hub import tasks as stage
from composer_hub.cli.grouped import grouped
from composer_hub.cli.main import format_option
from composer_hub.cli.options import Publication, from_option, publish_options, sandbox_option
from composer_hub.cli.sharding import Spread, sharding_options
from composer_hub.cli.task_exports import harbor, publish, serve
from composer_hub.hub import check_target, destination, load
from composer_hub.output import Output


@click.group(short_help="Make coding tasks from tested packages.")
def tasks() -> None:
    """Make, look at and check coding tasks."""


tasks.add_command(serve)
tasks.add_command(harbor)


@tasks.command(short_help="Make tasks and publish them.")
@click.argument("sources", nargs=-1, required=True, metavar="SRC…")
@click.option(
    "--kinds",
    default=",".join(stage.TaskOptions().kinds),
    callback=lambda ctx, param, names: tuple(name.strip() for name in names.split(",") if name.strip()),
    help="Kinds; also commit.",
)
@grouped("options", stage.TaskOptions)
@sandbox_option
@click.option("--harbor", "num_trees", default=0, metavar="N", help="Publish N tasks as Harbor trees, too.")
@sharding_options
@publish_options("tasks")
@format_option
def make(
    sources: tuple[str, ...],
    options: stage.TaskOptions,
    num_trees: int,
    spread: Spread,
    publication: Publication,
    out: Output,
) -> None:
    """Make tasks from packages: SRC is a folder, an sdist, a wheel, or a name that pip downloads.

    --kinds commit replays the commits of a git repository that change code and tests.
    Tests of the packages run in a sandbox. Hidden oracles go to the private dataset NAME-oracle.
    """
    if num_trees and publication.public:
        raise exits.Refused("Harbor trees hold the oracles and solutions. Leave out --public, or --harbor.")
    extras.need("Making tasks", "tasks", "pip")
    if options.with_oracle:
        check_target(publication.destination, f"{publication.repo}-oracle", "oracles", public=False)
    with out.progress("packages", len(sources)) as bar:

        def on_package(report: stage.PackageReport) -> None:
            bar.advance(1, package=report.package or report.source)
            out.note(report.line())

        sharding = spread.sharding(out, publication.destination, None, max(1, (os.cpu_count() or 1) // options.workers))
        made = stage.make(sources, options, on_package, sharding=sharding)
    with made.plans.until_published():
        if not made.tasks:
            reasons = made.numbers()["refused"] or {"no_task": len(made.reports)}
            counts = ", ".join(f"{reason} {number}" for reason, number in reasons.items())
            raise exits.NothingToDo(f"No task was made ({counts}). docs/reference/reasons.md explains the reasons.")
        publish(out, publication, made, num_trees)


@tasks.command(short_help="List tasks, or print one.")
@click.argument("ref", metavar="OWNER/NAME[@VERSION]")
@click.argument("task_id", required=False)
@click.option("--solution", is_flag=True, help="Also print the solution's files.")
@from_option
@format_option
def show(ref: str, task_id: str | None, solution: bool, origin: str, out: Output) -> None:
    """List the tasks of a version, or print the statement of one; the beginning of an id is enough."""
    found = list(stage.tasks_of(load(destination(origin), ref)))
    if task_id is None:
        rows = [{"task": one.task_id, "kind": one.kind, "package": one.package, "fails": len(one.fail_to_pass),
                 "difficulty": one.difficulty, "oracle": one.has_oracle, "split": one.split}
                for one in found]  # fmt: skip
        out.table(rows, id_key="task")
        return
    task = stage.one_of(found, task_id)
    facts = {"task": task.task_id, "kind": task.kind, "package": f"{task.package} {task.version}",
             "license": task.license, "symbols": task.symbols, "fail_to_pass": len(task.fail_to_pass),
             "pass_to_pass": len(task.pass_to_pass), "difficulty": task.difficulty}  # fmt: skip
    out.record(facts | ({"statement": task.statement} if out.mode == "json" else {}), id_key="task")
    out.text(f"\n{task.statement}")
    for edit in task.solution if solution else ():
        out.text(f"\n--- {edit.path}\n{edit.text}")


@tasks.command(short_help="Score the start and the solution of tasks.")
@click.argument("ref", metavar="OWNER/NAME[@VERSION]")
@click.argument("task_ids", nargs=-1)
@sandbox_option
@from_option
@format_option
def check(ref: str, task_ids: tuple[str, ...], sandbox: str, origin: str, out: Output) -> None:
    """Run the verifier on the tree that an agent gets and on the solution; only the second may be rewarded."""
    with out.progress("checking") as bar:

        def on_task(number: int) -> None:
            bar.total = number
            bar.advance(1)

        checks = stage.check_version(destination(origin), ref, task_ids, sandbox=sandbox, on_task=on_task)
    wrong = [one for one in checks if not one.ok]
    unknown = sum(one.gold is None for one in wrong)
    rows = [{"task": one.task_id, "kind": one.kind, "start": one.start, "solution": one.gold, "reason": one.reason}
            for one in wrong]  # fmt: skip
    out.table(rows, id_key="task", empty=f"All {len(checks):,} tasks reward their solution and nothing else.")
    if unknown:
        raise exits.ComposerError(f"{unknown} of {len(checks):,} tasks could not be checked. Check them again.")
    if wrong:
        raise exits.ComposerError(f"{len(wrong)} of {len(checks):,} tasks are wrong. Make them again or drop them.")
