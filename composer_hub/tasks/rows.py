"""A checked candidate in, the row of its task out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from composer_hub.environments.trees import matches
from composer_hub.records import SourceEdit, Task, stable_id, stable_share
from composer_hub.tasks.deletion import PackageModel
from composer_hub.tasks.gates import Checked
from composer_hub.tasks.language import Package, file_of, files_of
from composer_hub.tasks.options import GENERATOR_VERSION, TaskOptions
from composer_hub.tasks.statement import statements

MAX_PASS_TO_PASS = 60
MIN_PASS_TO_PASS = 20


def task_of(model: PackageModel, one: Checked, options: TaskOptions, has_oracle: bool) -> Task:
    """Return the row of a candidate that passed every gate; the same package and site give the same id."""
    package, candidate = model.package, one.candidate
    masked = [SourceEdit(path, None) for path in one.masked]
    masked += [agent for agent, _ in candidate.hidden]
    texts = statements(model, candidate, one.fail_to_pass, one.reasons)
    level = options.help_level
    passing = _pass_to_pass(model, one)
    changed = {edit.path for edit in one.edits if edit.path in model.tests}
    solution = _solution(model, one)
    files = changed.union(files_of([*one.fail_to_pass, *passing]))
    if candidate.kind == "write_tests":  # the oracle's mutants decide alone
        files, passing = set(model.package.tests), ()
    return Task(
        task_id=stable_id(package.digest, GENERATOR_VERSION, candidate.kind, options.seed, candidate.site),
        kind=candidate.kind,
        package=package.name,
        version=package.metadata.version,
        bundle_digest=package.digest,
        license=package.metadata.license,
        copyleft=package.copyleft,
        statement=texts[level],
        statements=texts,
        help_level=level,
        edits=tuple(sorted((*one.edits, *masked), key=lambda edit: edit.path)),
        solution=solution,
        editable=(candidate.notes["file"],) if candidate.kind == "write_tests" else _editable(package, solution),
        tests=tuple(sorted(files)),
        fail_to_pass=tuple(sorted(one.fail_to_pass)),
        pass_to_pass=passing,
        python_path=package.python_path,
        symbols=candidate.symbols,
        difficulty=_difficulty(model, one),
        seed=options.seed,
        generator_version=GENERATOR_VERSION,
        validation={
            "num_tests": len(model.baseline.passing),
            "num_run": len(candidate.guided),
            "num_flaky": len(model.baseline.flaky),
            "share_failing": round(len(one.fail_to_pass) / max(1, len(model.baseline.passing)), 4),
            "recheck": one.recheck,
            **({"mutation": candidate.notes["mutation"]} if "mutation" in candidate.notes else {}),
        },
        leaks={"num_files": one.num_searched, "masked": list(one.masked), "remaining": []},
        has_oracle=has_oracle,
        hidden=tuple(verifier for _, verifier in candidate.hidden),
        commit=candidate.notes.get("commit", ""),
        date=candidate.notes.get("date", ""),
        num_files=len(solution),
        num_lines=candidate.lines,
        language=package.language.name,
    )  # fmt: skip


def _editable(package: Package, solution: Sequence[SourceEdit]) -> tuple[str, ...]:
    return (*package.editable, *(edit.path for edit in solution if not matches(edit.path, package.editable)))


def _solution(model: PackageModel, one: Checked) -> tuple[SourceEdit, ...]:
    """Return the files that turn the agent's tree into one that passes."""
    if one.candidate.gold is not None:
        return one.candidate.gold
    return tuple(SourceEdit(edit.path, model.texts[edit.path]) for edit in one.edits if edit.path in model.sources)


def _pass_to_pass(model: PackageModel, one: Checked) -> tuple[str, ...]:
    """Return tests that pass before and after: those that the edit could have changed first."""
    quick = [id for id in one.pass_to_pass if model.baseline.seconds.get(id, 0) < 2]
    chosen = sorted(quick, key=stable_share)[:MAX_PASS_TO_PASS]
    if len(chosen) < MIN_PASS_TO_PASS and one.candidate.kind != "write_tests":
        files = files_of(one.fail_to_pass)
        rest = model.baseline.passing - one.fail_to_pass - set(chosen)
        # Tests of the same files cost no further import.
        near = sorted(rest, key=lambda id: (file_of(id) not in files, stable_share(id)))
        if one.candidate.kind not in ("removal", "feature"):
            chosen += [id for id in near if model.baseline.seconds.get(id, 0) < 2][: MIN_PASS_TO_PASS - len(chosen)]
        else:
            alive = [id for id in near if file_of(id) not in files]
            chosen += alive[: MIN_PASS_TO_PASS - len(chosen)]
    return tuple(sorted(chosen))


def _difficulty(model: PackageModel, one: Checked) -> float:
    """Estimate from the size of the change how hard a task is; measured solve rates replace this."""
    weight = one.candidate.lines / 25 + (len(one.candidate.symbols) - 1) / 4 + math.log1p(len(one.fail_to_pass)) / 12
    return round(1 - math.exp(-weight), 3)
