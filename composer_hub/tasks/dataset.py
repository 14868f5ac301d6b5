"""A task set as versions: tasks and bundles in one dataset, hidden oracles in a second one that stays private.

Tasks of packages that a run did not make again stay in the next version.
"""

from __future__ import annotations

import base64
import dataclasses
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_hub import exits
from composer_hub.environments.shelf import ORACLE, ORACLES, shelf_of
from composer_hub.hub import VERSION_MARK, Card, Draft, Lineage, Parent, Table, Version
from composer_hub.records import Task, features_of, from_row, to_row
from composer_hub.tasks.harbor import checked_trees, registry_of
from composer_hub.tasks.options import GENERATOR_VERSION, TaskOptions
from composer_hub.tasks.sets import Bundle, TaskSet

if TYPE_CHECKING:
    from datasets import Features

_TREES = (
    "`tasks/` holds Harbor trees of some of these tasks, and `registry.json` names them. Download the repository at a "
    "tag and run `harbor run --registry-path registry.json` in it. **The trees hold the hidden oracles, so this "
    "repository must stay private.**"
)
TAGS = ("coding", "agents", "reinforcement-learning", "verifiable", "swe")


def draft(
    made: TaskSet,
    name: str,
    before: Version | None = None,
    *,
    repo: str = "",
    num_trees: int = 0,
    hidden: Version | None = None,  # the version of the oracles
) -> Draft:
    """Return the next version of a task dataset, with `num_trees` of the new tasks also as Harbor trees."""
    if not made.tasks:
        raise exits.NothingToDo(f"No task was made: {made.numbers()['refused']}. Read the reports of the task set.")
    again = {report.package for report in made.reports if report.package}
    kept = _tasks_of(before, again)
    bundles = [*_bundles_of(before, {task.bundle_digest for task in kept}), *map(bundle_row, made.bundles)]
    tasks = [*kept, *made.tasks]
    needed = {task.task_id for task in tasks if task.has_oracle}
    if hidden is not None and (missing := len(needed - hidden.ids(ORACLE))):
        raise exits.ComposerError(
            f"{hidden.repo} {hidden.tag} lacks {missing:,} oracles of these tasks. Make them again."
        )
    numbers = made.numbers()
    trees = trees_for(made, repo or name, before, {task.task_id for task in kept}, num_trees)
    card = Card(
        "tasks",
        pretty_name=f"{name}: coding tasks from tested packages",
        license=_license_of(bundles),
        tags=TAGS,
        counts={
            "tasks": len(tasks),
            "packages": len({task.package for task in tasks}),
            "by kind": dict(sorted(Counter(task.kind for task in tasks).items())),
            "with a hidden oracle": sum(task.has_oracle for task in tasks),
            "from copyleft packages": sum(task.copyleft for task in tasks),
        },
        dropped={name.replace(":", ", "): number for name, number in numbers["reasons"].items()}
        | {f"package, {name}": number for name, number in numbers["refused"].items()},
        holes={
            "made": _made(made.options),
            "yields": _yields(numbers),
            "licenses": _licenses(bundles),
            "trees": _TREES if trees else "",
        },
        trees=trees,
    )
    lineage = Lineage(
        parents=(Parent(ORACLES, hidden.repo, hidden.revision, tag=hidden.tag),) if hidden and needed else (),
        config={key: value for key, value in dataclasses.asdict(made.options).items() if key != "workers"}
        | {"generator_version": GENERATOR_VERSION},
        sources={row["package"]: {"version": row["version"], "bundle": row["digest"]} for row in bundles},
    )
    tables = [
        Table("tasks", map(to_row, tasks), features_of(Task), "task_id", ("package", "kind"), split=None,
              index_columns=("kind", "package", "license", "has_oracle", "difficulty")),
        Table("bundles", bundles, bundle_features(), "digest", ("package",), index_columns=("package", "version")),
    ]  # fmt: skip
    return Draft(tables, card, lineage, f"Tasks from {', '.join(sorted(again))}"[:100])


def oracle_draft(made: TaskSet, name: str, before: Version | None = None) -> Draft:
    """Return the next version of the private dataset of oracles."""
    from datasets import Features, Json, Value

    own = {task.task_id: task for task in made.tasks}
    again = {report.package for report in made.reports if report.package}
    rows = [dict(row) for row in before.rows(ORACLE) if row["package"] not in again] if before else []
    for task_id, oracle in made.oracles.items():
        task = own[task_id]
        found = {
            "task_id": task_id,
            "bundle_digest": task.bundle_digest,
            "package": task.package,
            "oracle": dict(oracle),
        }
        rows.append(found)
    features = Features(
        {"task_id": Value("string"), "bundle_digest": Value("string"), "package": Value("string"), "oracle": Json()}
    )
    card = Card(
        "oracles",
        pretty_name=f"{name}: hidden oracles",
        tags=("composer-hub", "oracle"),
        counts={"oracles": len(rows)},
    )
    return Draft([Table(ORACLE, rows, features, "task_id", ("package",))], card, Lineage(), "Oracles")


def bundle_row(bundle: Bundle) -> dict[str, Any]:
    """Return a bundle as it is published."""
    return dataclasses.asdict(bundle) | {
        "python_path": list(bundle.python_path),
        "requirements": list(bundle.requirements),
        "data": base64.b64encode(bundle.data).decode(),
    }


def trees_for(
    made: TaskSet, repo: str, before: Version | None, kept: Collection[str], number: int
) -> dict[str, bytes | None]:
    """Return the files of a version's trees by path: new tasks' trees, and None for those of kept tasks."""
    there = before.destination.files(before.repo, before.revision) if before else {}
    found: dict[str, bytes | None] = {
        path: None for path in there if path.startswith("tasks/") and path.split("/")[1] in kept
    }
    if number:
        with tempfile.TemporaryDirectory(prefix="composer-bundles-") as folder:
            shelf = shelf_of(made.tasks, map(bundle_row, made.bundles), made.oracles, Path(folder))
            for name, files in checked_trees(shelf, number):
                found |= {f"tasks/{name}/{path}": data for path, data in (files or {}).items()}
    names = sorted({path.split("/")[1] for path in found})
    return found | {"registry.json": registry_of(repo, VERSION_MARK, names)} if names else {}


def bundle_features() -> Features:
    """Return the columns of `bundles`."""
    from datasets import Features, List, Value

    names = ("digest", "package", "version", "license")
    text = Value("string")
    return Features(
        {
            **dict.fromkeys(names, text),
            "copyleft": Value("bool"),
            "python_path": List(text),
            "requirements": List(text),
            "data": text,
        }
    )


def tasks_of(version: Version) -> Iterator[Task]:
    """Yield the tasks of a version."""
    return (from_row(Task, row) for row in version.rows("tasks"))


def _tasks_of(before: Version | None, again: set[str]) -> list[Task]:
    return [task for task in tasks_of(before) if task.package not in again] if before else []


def _bundles_of(before: Version | None, used: set[str]) -> list[Mapping[str, Any]]:
    return [row for row in before.rows("bundles") if row["digest"] in used] if before else []


def _made(options: TaskOptions) -> str:
    kinds = ", ".join(f"`{kind}`" for kind in options.kinds)
    each = f"The first task and every {options.recheck_every}th after it"
    checks = f" {each} were checked again by two runs of all tests."
    return (
        f"Kinds: {kinds}, at most {options.max_per_kind} of a kind and package, seed {options.seed}. The unchanged "
        "tests ran three times, with two hash seeds and in reversed order; tests that differ were set aside. Then, for "
        "every edit, the tests that can reach it ran in a sandbox without network."
        + checks
        * bool(options.recheck_every)
    )


def _yields(numbers: Mapping[str, Any]) -> str:
    """Return how many candidates became tasks, as a table."""
    rows = []
    again = [(name.split(":"), count) for name, count in numbers["rechecked"].items()]
    for kind, tried in numbers["tried"].items():
        valid, kept = numbers["valid"].get(kind, 0), numbers["kept"].get(kind, 0)
        checks = {outcome: count for (checked, outcome), count in again if checked == kind}
        exact = f"{checks.get('exact', 0)} of {sum(checks.values())}" if checks else "-"
        rows.append(f"| {kind} | {tried:,} | {kept:,} ({kept / max(tried, 1):.0%}) | {valid:,} | {exact} |")
    head = ["| kind | candidates run | kept | valid | exact in two full runs |", "|---|---:|---:|---:|---:|"]
    return "\n".join([*head, *rows])


def _license_of(bundles: Iterable[Mapping[str, Any]]) -> str:
    """Return the license of a dataset: that of its packages, if all have the same."""
    licenses = {(row["license"], row["copyleft"]) for row in bundles}
    return licenses.pop()[0] if len(licenses) == 1 else "other"


def _licenses(bundles: Iterable[Mapping[str, Any]]) -> str:
    # Each replayed commit has a bundle.
    rows = sorted(
        {
            f"| {row['package']} | {row['version']} | {row['license']} | {'yes' if row['copyleft'] else 'no'} |"
            for row in bundles
        }
    )
    return "\n".join(["| package | version | license | copyleft |", "|---|---|---|---|", *rows])
