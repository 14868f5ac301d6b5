"""Commit replay: a change of code and tests in the history of a package becomes the task to make it again.

In: a git repository on this machine; no network is used. Out: per change a measured tree and a checked candidate. The
bundle is the tree after the change. The agent's tree lacks the change, except in tests and configuration; documents
and changelogs are as they were before, because they often say how it was made.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from composer_hub.environments.trees import matches
from composer_hub.environments.venvs import VenvError
from composer_hub.local_hub.characters import is_plain
from composer_hub.records import SourceEdit
from composer_hub.tasks import history
from composer_hub.tasks.baseline import Baseline
from composer_hub.tasks.bench import Bench, Job
from composer_hub.tasks.code import removed_lines
from composer_hub.tasks.deletion import Candidate, PackageModel
from composer_hub.tasks.gates import TEST_SECONDS, Checked, num_functions
from composer_hub.tasks.history import Change, ChangedFile
from composer_hub.tasks.language import Package, PackageRefused, files_of
from composer_hub.tasks.languages import LANGUAGES
from composer_hub.tasks.sources import MAX_BYTES, is_scrubbed, open_package

MAX_LINES, MAX_CHANGED = 600, 30  # of code, in files
_NEAR = 8  # test files that name a changed module and run besides the changed ones
_CONFIGURATION = (
    "pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "pytest.ini", "noxfile.py", "*requirements*.txt",
    "conftest.py", "*.lock", "MANIFEST.in", ".*", "package.json", "*-lock.*", "pnpm-*.yaml", "tsconfig*.json",
    "*.config.*",
)  # fmt: skip
_MISSING = re.compile(r"(?:No module named|Cannot find (?:module|package)) '(\w[^']*)'")  # of Python and node
_TEST_FOLDERS = {"test", "tests", "testing", "__tests__", "__mocks__", "__snapshots__", "spec"}


def replays(
    folder: Path,
    work: Path,
    make_venv: Callable[[Package], Path],
    make_bench: Callable[[Package, Path, Path], Bench],
    counts: Counter[str],  # reason -> changes, and `tried`
    *,
    revisions: str = "HEAD",
    max_commits: int = 200,
    max_failing: int = 100,
    suite_seconds: float = 10.0,
    hide_tests: bool = False,
) -> Iterator[tuple[Bench, PackageModel, Checked]]:
    """Yield the changes of a repository that make a task."""
    try:
        commits = history.commits(folder, revisions, max_commits)
    except history.HistoryError as error:
        raise PackageRefused("no_history", f"{folder} has no history that git can read: {error}") from error
    for sha, *parents in commits:
        counts["commits"] += 1
        try:
            change = history.change_of(folder, sha, parents)
            if change is None or not _touches_both(change):
                continue
            counts["tried"] += 1
            if not all(is_plain(one.path) for one in change.files):
                raise _Skipped("file_names")
            package = _package(folder, change, work)
            bench = make_bench(package, make_venv(package), work / "bench")
            replayed = _replayed(folder, change, bench, max_failing, suite_seconds, hide_tests)
        except _Skipped as error:
            counts[str(error)] += 1
        except PackageRefused as error:
            counts[error.reason] += 1
        except VenvError:
            counts["dependencies"] += 1
        except (OSError, RecursionError, MemoryError, UnicodeError, history.HistoryError):
            counts["unreadable"] += 1
        else:
            yield (bench, *replayed)


class _Skipped(Exception):
    """A change that gives no task; its text is the reason."""


def _touches_both(change: Change) -> bool:
    """Return whether a change has code and tests of one language."""
    for language in LANGUAGES:
        paths = {one.path for one in change.files if one.path.endswith(language.code)}
        tests = {path for path in paths if language.is_test(path)}
        if tests and any(not _is_support(path) and not _is_configuration(path) for path in paths - tests):
            return True
    return False


def _is_support(path: str) -> bool:
    """Return whether a file belongs to the tests: one of them, or data and helpers beside them."""
    parts = PurePosixPath(path).parts
    is_beside = bool(set(parts[:-1]) & _TEST_FOLDERS) or parts[-1] == "conftest.py"
    return is_beside or any(language.is_test(path) for language in LANGUAGES)


def _is_configuration(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return parts[0].startswith(".") or any(fnmatch(parts[-1], one) for one in _CONFIGURATION)


def _package(folder: Path, change: Change, work: Path) -> Package:
    """Write the tree after a change and open it."""
    files = history.tree(folder, change.sha, MAX_BYTES)
    if files is None:
        raise _Skipped("too_large")
    # A tree without metadata is named after its folder.
    raw = work / "commit" / folder.resolve().name.removesuffix(".git")
    shutil.rmtree(raw.parent, ignore_errors=True)
    for path, data in files.items():
        (raw / path).parent.mkdir(parents=True, exist_ok=True)
        (raw / path).write_bytes(data)
    return open_package(str(raw), work / "package")


# --------------------------------------------------------------------------------------------------------------- edits


def _replayed(
    folder: Path, change: Change, bench: Bench, max_failing: int, suite_seconds: float, hide_tests: bool
) -> tuple[PackageModel, Checked]:
    package = bench.package
    code, others, tests = _sorted_out(change, package)
    num_lines = sum(one.num_lines for one in code)
    if num_lines > MAX_LINES or len(code) > MAX_CHANGED:
        raise _Skipped("too_many_lines")
    if any(one.num_lines < 0 for one in code):
        raise _Skipped("binary")
    before = _texts(folder, [(one.path, one.before) for one in (*code, *others, *tests) if one.num_lines >= 0])
    after = _texts(folder, [(one.path, one.after) for one in (*code, *tests) if one.num_lines >= 0])
    meaning = package.language.meaning
    if all(meaning(one.path, before.get(one.path, "")) == meaning(one.path, after.get(one.path, "")) for one in code):
        raise _Skipped("no_code")
    start = tuple(SourceEdit(one.path, before.get(one.path)) for one in (*code, *others))
    solution = tuple(SourceEdit(one.path, after.get(one.path)) for one in code)
    changed_tests = [one.path for one in tests if one.path in package.tests]
    baseline, failing, passing = _measured(bench, start, solution, changed_tests, suite_seconds)
    model = PackageModel(package, _with_lines(baseline, package, solution, failing))
    symbols, interface, private = _symbols(model, before, solution, failing)
    quotes = removed_lines(start, solution)
    notes = {
        "message": history.described(change.message, quotes),
        "date": change.date,
        "commit": change.sha,
        "interface": "\n".join(interface),
        "private": "\n".join(private),
        "hidden": "yes" if hide_tests else "",
    }
    candidate = Candidate(
        "commit", change.sha, symbols, (), frozenset(failing | passing), num_lines, files=start, gold=solution,
        hidden=tuple((SourceEdit(one.path, before.get(one.path)), SourceEdit(one.path, after.get(one.path)))
                     for one in tests if hide_tests and one.num_lines >= 0),
        notes=notes,
    )  # fmt: skip
    if hide_tests and not notes["message"]:
        raise _Skipped("says_nothing")
    if num_functions(package.language, failing) > max_failing:
        raise _Skipped("unfocused")
    if not passing:
        raise _Skipped("nothing_passes")
    return model, Checked(candidate, start, frozenset(failing), frozenset(passing), cpu_s=bench.cpu_s)


def _sorted_out(change: Change, package: Package) -> tuple[list[ChangedFile], list[ChangedFile], list[ChangedFile]]:
    """Return the changed files of the package, other ones, and those of tests; configuration is in none."""
    own = package.editable
    code, others, tests = [], [], []
    for one in change.files:
        if is_scrubbed(Path(one.path)):
            continue
        data = any(one.path.startswith(pattern.partition("**")[0]) for pattern in own if "**" in pattern)
        if _is_support(one.path):
            tests.append(one)
        elif matches(one.path, own) or (data and not _is_configuration(one.path)) or _was_module(one, package):
            code.append(one)
        elif not _is_configuration(one.path) and one.num_lines >= 0:
            others.append(one)
    if not code:
        raise _Skipped("no_code")
    return code, others, tests


def _was_module(one: ChangedFile, package: Package) -> bool:
    """Return whether a change deletes a module beside those that are there."""
    start = "" if package.python_path[0] == "." else f"{package.python_path[0]}/"
    is_code = not one.after and one.path.endswith(package.language.code)
    return is_code and str(PurePosixPath(one.path).parent) in (start.rstrip("/"), ".")


def _texts(folder: Path, blobs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the texts of some files by path; those that are not there are left out."""
    there = [(path, blob) for path, blob in blobs if blob]
    found = {}
    for (path, _), data in zip(there, history.contents(folder, [blob for _, blob in there]), strict=True):
        try:
            found[path] = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _Skipped("encoding") from error
    return found


# -------------------------------------------------------------------------------------------------------------- runs


def _measured(
    bench: Bench,
    start: tuple[SourceEdit, ...],
    solution: tuple[SourceEdit, ...],
    changed: Sequence[str],
    suite_seconds: float,
) -> tuple[Baseline, set[str], set[str]]:
    """Run the tests near a change after it, before it, and after it once more in another order."""
    if not changed:
        raise _Skipped("no_tests")
    near = _near(bench.package, changed, solution)
    options = {"budget": suite_seconds, "max_hanging": 3}
    gold = Job("gold", (*changed, *near), (*start, *solution), None, 10 * suite_seconds + 60, TEST_SECONDS * 5, options)
    first, broken = bench.run([gold, replace(gold, name="start", edits=start)])
    if not set(files_of(first.passed())) & {*changed}:
        missing = _MISSING.search(f"{first.values.get('example', '')} {first.detail}")
        raise _Skipped(f"needs {missing[1].split('.')[0]}" if missing else "gold_fails")
    if broken.problem in ("late", "killed", "hangs"):
        raise _Skipped(broken.problem)
    if not first.passed() - broken.passed():
        raise _Skipped("nothing_fails")
    # A machine that is busy may have left tests out of one run only.
    ran = first.passed() - set(broken.values.get("left_out", ()))
    (again,) = bench.run([replace(gold, name="again", ids=tuple(sorted(ran)), seed=1, options={"reverse": True})])
    stable = ran & again.passed()
    failing, passing = stable - broken.passed(), stable & broken.passed()
    if not failing:
        raise _Skipped("flaky")
    if any(" at 0x" in id for id in failing):
        failing = {id for id in failing if " at 0x" not in id}
    seconds = {id: first.seconds.get(id, 0.0) for id in stable}
    return Baseline(
        frozenset(stable), frozenset(ran - stable), frozenset(), len(first.statuses) - len(ran), {}, seconds, {}, {},
        frozenset(), frozenset(), first.cpu_s,
    ), failing, passing  # fmt: skip


def _near(package: Package, changed: Sequence[str], solution: Sequence[SourceEdit]) -> list[str]:
    """Return a few other test files, those first that name a changed module."""
    stems = {PurePosixPath(edit.path).stem.replace("__init__", package.name) for edit in solution}
    word = re.compile(r"\b(" + "|".join(sorted(map(re.escape, stems))) + r")\b")
    others = [path for path in package.tests if path not in changed]
    return sorted(others, key=lambda path: (not word.search(package.text(path)), path))[:_NEAR]


def _with_lines(baseline: Baseline, package: Package, solution: Sequence[SourceEdit], failing: set[str]) -> Baseline:
    """Return a baseline in which the failing tests run all lines of the changed files, as oracles need."""
    lines = {
        edit.path: dict.fromkeys(range(1, edit.text.count("\n") + 2), frozenset(failing))
        for edit in solution
        if edit.text is not None and edit.path in package.sources
    }
    return replace(baseline, lines=lines)


# ----------------------------------------------------------------------------------------------------------- interface


def _symbols(
    model: PackageModel, before: Mapping[str, str], solution: Sequence[SourceEdit], failing: set[str]
) -> tuple[tuple[str, ...], list[str], list[str]]:
    """Return the functions that a change adds or edits, what the tests need to know of it, and its own helpers."""
    texts = [model.tests[path].text for path in files_of(failing) if path in model.tests]
    language, symbols, shown, private = model.language, list[str](), list[str](), list[str]()
    for edit in solution:
        source = model.sources.get(edit.path)
        if source is None:
            continue
        text = before.get(edit.path, "")
        earlier = language.read(edit.path, text if language.parses(edit.path, text) else "", model.package.python_path)
        old = {one.symbol: one for one in language.functions(earlier)}
        new = sorted(language.names(source) - language.names(earlier))
        shown += [f"{source.module}:{name}" for name in new if _is_named(name, texts)]
        for one in language.functions(source):
            name, there = one.symbol.partition(":")[2], old.get(one.symbol)
            is_old = there is not None and language.head(earlier, name) == language.head(source, name)
            if there is not None and is_old and there.digest == one.digest:
                continue
            symbols.append(one.symbol)
            owner, _, last = name.rpartition(".")
            if is_old or {one.symbol, f"{source.module}:{owner}"} & {*shown}:
                continue
            if _is_named(owner if last == "__init__" else last, texts):
                shown.append(one.symbol)
            elif there is None:
                private.append(one.symbol)
    return tuple(symbols or [f"{model.sources[path].module}:" for path in _paths(model, solution)]), shown, private


def _is_named(name: str, texts: Sequence[str]) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", text) for text in texts)


def _paths(model: PackageModel, solution: Sequence[SourceEdit]) -> list[str]:
    return [edit.path for edit in solution if edit.path in model.sources] or list(model.package.sources[:1])
