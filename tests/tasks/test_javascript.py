"""Tasks from JavaScript packages: the parts that need no node, and the whole way where there is one."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from composer_hub import exits, tasks
from composer_hub.environments import node_tests
from composer_hub.environments.coding import CodingOptions, coding_factory
from composer_hub.environments.node import installed, modules_for, node_version
from composer_hub.environments.sandbox import Sandbox, open_sandbox
from composer_hub.environments.shelf import TaskShelf, shelf_of
from composer_hub.environments.trees import bundle_files, edited
from composer_hub.environments.venvs import VenvError
from composer_hub.environments.verifier import submission, verify
from composer_hub.records import SourceEdit, Task
from composer_hub.tasks import leaks
from composer_hub.tasks.bench import Bench, Job
from composer_hub.tasks.code import apply
from composer_hub.tasks.dataset import bundle_row
from composer_hub.tasks.gates import MAX_HANGING
from composer_hub.tasks.harbor import check_tree, tree_of
from composer_hub.tasks.javascript import CODE, JavaScript
from composer_hub.tasks.language import PackageRefused
from composer_hub.tasks.languages import LANGUAGES
from composer_hub.tasks.sources import open_package
from tests.tasks import toy_node
from tests.tasks.test_commits import commit, git

pytest.importorskip("tree_sitter_typescript", reason="the extra `javascript` is not installed")
SCRIPT = JavaScript()
TEXT = """/** Adds é numbers. */
export function add(a: number, b = 2): number {
  // sum
  const c = a + b;
  if (c > 10) {
    return 10;
  } else if (c < 0) {
    return 0;
  } else {
    log(c, a);
  }
  return c;
}
export const twice = (v: number): number => v * 2;
export class Box<T> {
  get value(): T { return this.inner; }
  map<U>(f: (one: T) => U): Box<U> {
    if (!f) return null as any;
    return new Box(f(this.inner));
  }
}
module.exports.low = function (s) { const t = s.trim(); return t.toLowerCase(); };
"""
SOURCE = SCRIPT.read("src/a.ts", TEXT, ())
FUNCTIONS = {one.symbol: one for one in SCRIPT.functions(SOURCE)}


@pytest.fixture(scope="session")
def node() -> str:
    try:
        open_sandbox()
        return node_version()
    except (VenvError, exits.Refused) as error:
        pytest.skip(f"no JavaScript is run here: {error}")


@pytest.fixture(scope="session")
def scripts(node: str, tmp_path_factory: pytest.TempPathFactory) -> tasks.TaskSet:
    source = toy_node.write(tmp_path_factory.mktemp("toy-node"))
    options = tasks.TaskOptions(kinds=("stub", "branch", "bug", "removal"), max_per_kind=2, workers=1, recheck_every=3)
    return tasks.make([str(source)], options)


@pytest.fixture(scope="session")
def shelf(scripts: tasks.TaskSet, tmp_path_factory: pytest.TempPathFactory) -> TaskShelf:
    return shelf_of(scripts.tasks, map(bundle_row, scripts.bundles), {}, tmp_path_factory.mktemp("bundles"))


def opened(folder: Path, work: Path, files: Mapping[str, str] | None = None):
    return open_package(str(toy_node.write(folder, **(files or {}))), work)


# ----------------------------------------------------------------------------------------------------------- find, edit


def test_each_language_has_another_name() -> None:
    assert len({one.name for one in LANGUAGES}) == len(LANGUAGES)


def test_functions_methods_and_named_arrow_functions_are_found() -> None:
    assert list(FUNCTIONS) == [f"src/a.ts:{name}" for name in ("add", "twice", "Box.value", "Box.map", "low")]


@pytest.mark.parametrize("symbol", FUNCTIONS)
@pytest.mark.parametrize("body", [SCRIPT.stub, SCRIPT.answer], ids=["stub", "answer"])
def test_a_function_without_its_body_is_valid_code_and_says_nothing_of_it(symbol: str, body: str) -> None:
    function = FUNCTIONS[symbol]
    (edit,) = apply({"src/a.ts": TEXT}, [SCRIPT.emptied(function, body)])
    assert SCRIPT.parses(edit.path, edit.text)
    assert SOURCE.of(function.body) not in edit.text
    assert edit.text.count("\n}") == TEXT.count("\n}") or "\n" not in SOURCE.of(function.body)


def test_an_arm_that_is_taken_away_leaves_the_others() -> None:
    first, second = SCRIPT.arms(FUNCTIONS["src/a.ts:add"])
    (without_first,) = apply({"src/a.ts": TEXT}, [first.without])
    (without_second,) = apply({"src/a.ts": TEXT}, [second.without])
    assert "if (c < 0) {\n    return 0;\n  } else {" in without_first.text
    assert "c > 10" not in without_first.text
    assert "if (c > 10) {\n    return 10;\n  } else {" in without_second.text
    assert "c < 0" not in without_second.text


def test_every_mutant_is_valid_code_that_differs() -> None:
    splices = [splice for one in FUNCTIONS.values() for _, _, splice in SCRIPT.mutants(one)]
    texts = {apply({"src/a.ts": TEXT}, [splice])[0].text for splice in splices}
    assert len(texts) == len(splices) > 10
    assert TEXT not in texts
    assert all(SCRIPT.parses("src/a.ts", text) for text in texts)


def test_broken_code_does_not_parse() -> None:
    assert not SCRIPT.parses("a.ts", "export function (")
    assert SCRIPT.parses("a.md", "export function (")


def test_a_copy_without_types_and_in_another_format_has_the_same_digest() -> None:
    compiled = "function add(a, b=2)\n{ const c = a + b\n if (c > 10) { return 10 } else if (c < 0) { return 0 }\n"
    compiled += " else { log(c, a,) } return c }"
    assert SCRIPT.digests("dist/a.js", compiled.encode())["add"] == {FUNCTIONS["src/a.ts:add"].digest}
    assert SCRIPT.digests("dist/a.js", compiled.replace("10", "11").encode())["add"] != {
        FUNCTIONS["src/a.ts:add"].digest
    }


def test_code_that_is_very_deep_is_read() -> None:
    deep = f"export function sum() {{ const a = {' + '.join(['1'] * 3000)}; return a; }}\n"
    deep += f"export const b = {'[' * 3000}1{']' * 3000};\n"
    assert len(SCRIPT.digests("a.js", deep.encode())["sum"]) == 1


def test_a_copy_in_installed_packages_is_found(tmp_path: Path) -> None:
    (tmp_path / "node_modules/fork").mkdir(parents=True)
    (tmp_path / "node_modules/fork/index.mjs").write_text(toy_node.WORDS)
    found = leaks.library(SCRIPT, SCRIPT.readable(tmp_path))
    (slug,) = (one for one in SCRIPT.functions(SCRIPT.read("w.js", toy_node.WORDS, ())) if one.name == "slug")
    assert len(found.copies("slug", slug.digest)) == 1


def test_a_statement_shows_the_signature_and_its_documentation() -> None:
    head = SCRIPT.head(SOURCE, "add")
    assert head == "/** Adds é numbers. */\nexport function add(a: number, b = 2): number"
    assert SCRIPT.head(SOURCE, "Box.map") == "// of Box\nmap<U>(f: (one: T) => U): Box<U>"


# -------------------------------------------------------------------------------------------------------------- runners


@pytest.mark.parametrize(
    ("manifest", "runner"),
    [
        ({"scripts": {"test": "npm run lint && vitest run --typecheck"}}, "vitest"),
        ({"scripts": {"test": "TZ=UTC jest --coverage"}}, "jest"),
        ({"scripts": {"test": "node --conditions development test/index.js"}}, "node"),
        ({"scripts": {"test": "tsx --test"}}, "node"),
        ({"scripts": {"test": "xo && ava"}}, "ava"),
        ({"scripts": {"test": "nyc mocha"}, "devDependencies": {"mocha": "1", "jest": "1"}}, "mocha"),
        ({"devDependencies": {"vitest": "^3"}}, "vitest"),
        ({"scripts": {"test": "make test"}}, ""),
        ({}, "node"),
    ],
)
def test_the_manifest_names_the_runner(manifest: dict, runner: str) -> None:
    assert node_tests.runner_of(manifest) == runner


def test_flags_of_a_test_script_are_kept_and_its_other_commands_are_not() -> None:
    manifest = {"scripts": {"test": "rm -rf / ; node --import ./hook.js -r dotenv/config --eval 1 --test"}}
    command = node_tests.command(manifest, ["a.js"], version="v22.18.0", seconds=5, report="r", reporter="x")
    assert command[:5] == ["node", "--import", "./hook.js", "-r", "dotenv/config"]
    assert not {"rm", "--eval", "1"} & set(command)


@pytest.mark.parametrize(
    ("version", "flag"), [("v22.6.0", True), ("v22.18.0", False), ("v23.5.0", True), ("v24.1.0", False)]
)
def test_only_versions_that_ask_for_it_get_the_flag_for_types(version: str, flag: bool) -> None:
    command = node_tests.command({}, ["a.test.ts"], version=version, seconds=5, report="r")
    assert ("--experimental-strip-types" in command) == flag
    assert node_tests.strips_types(version)


def test_titles_of_javascript_that_differ_in_brackets_are_other_tests() -> None:
    assert JavaScript().function_of("a.test.ts::split > ab => [ 'a', 'b' ]") == "a.test.ts::split > ab => [ 'a', 'b' ]"


def test_reports_of_jest_and_vitest_give_an_id_per_title_and_the_worse_of_two_ends() -> None:
    def told(status: str, title: str) -> dict:
        return {"ancestorTitles": ["slug"], "title": title, "status": status, "duration": 3}

    report = {"testResults": [{"name": "/tree/src/a.test.ts", "assertionResults": [
        told("passed", "a"), told("failed", "a"), told("pending", "b"), told("passed", "zero\u200bwidth"),
        told("passed", "c") | {"ancestorTitles": ["", "slug"]}]},
        {"name": "/tree/src/b.test.ts", "assertionResults": [], "message": "SyntaxError"}]}  # fmt: skip
    found = node_tests.results(json.dumps(report), "/tree")
    assert {id: one["status"] for id, one in found.items()} == {
        "src/a.test.ts::slug > a": "failed",
        "src/a.test.ts::slug > b": "skipped",
        "src/a.test.ts::slug > c": "passed",
        "src/a.test.ts::slug > zero\\u{200b}width": "passed",
        "src/b.test.ts::": "failed",
    }


# ---------------------------------------------------------------------------------------------------------------- edges


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"package.json": "[1]"}, "no_manifest"),
        ({"package.json": '{"scripts": {"test": "mocha"}}'}, "no_runner"),
        ({"package.json": '{"workspaces": ["packages/*"]}', "packages/one/package.json": "{}"}, "monorepo"),
    ],
)
def test_a_package_that_cannot_give_tasks_is_refused_with_its_reason(
    files: dict, reason: str, tmp_path: Path, node: str
) -> None:
    with pytest.raises(PackageRefused) as error:
        opened(tmp_path / "source", tmp_path / "work", files)
    assert error.value.reason == reason


@pytest.mark.parametrize(("version", "sentence"), [("", "not on PATH"), ("v18.20.1", "version v18.20.1. Install")])
def test_a_machine_without_a_usable_node_says_what_to_install(version: str, sentence: str, tmp_path: Path) -> None:
    for name in ("node", "npm") if version else ():
        (tmp_path / name).write_text(f"#!/bin/sh\necho {version}\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(VenvError, match=sentence):
        node_version(str(tmp_path))


def test_a_package_without_tests_or_sources_is_refused(tmp_path: Path, node: str) -> None:
    for gone, reason in (("test", "no_tests"), ("src", "no_sources")):
        source = toy_node.write(tmp_path / gone)
        shutil.rmtree(source / gone)
        with pytest.raises(PackageRefused) as error:
            open_package(str(source), tmp_path / "work")
        assert error.value.reason == reason


def test_builds_maps_and_installed_packages_are_taken_out_of_the_tree(tmp_path: Path, node: str) -> None:
    places = "dist/words.js lib/words.js src/words.js.map node_modules/tiny-words/a.js src/words.min.js".split()
    built = dict.fromkeys(places, toy_node.WORDS)
    package = opened(tmp_path / "source", tmp_path / "work", built)
    left = {path.relative_to(package.folder).as_posix() for path in package.folder.rglob("*")}
    assert not left & built.keys()
    assert package.sources == ("src/spans.js", "src/words.js")
    assert package.editable == tuple(f"src/**/*{end}" for end in CODE)


def test_a_package_that_depends_on_itself_is_not_installed(tmp_path: Path, node: str) -> None:
    place = modules_for(
        {
            "name": "tiny",
            "devDependencies": {"tiny": "1", "old": "npm:tiny@*", "local": "file:."},
            "scripts": {"install": "exit 1"},
        },
        None,
        tmp_path,
    )
    assert installed(place) == ()
    assert not list((place / "node_modules").iterdir())
    with pytest.raises(VenvError, match="outside of the package"):
        modules_for({"dependencies": {"other": "file:../other"}}, None, tmp_path)


@pytest.mark.parametrize(
    ("prints", "reason"), [("echo 'npm ERR! code E404' >&2", "code E404 Check"), ("", "exit status 3. Check")]
)
def test_why_npm_installs_nothing_is_said(
    prints: str, reason: str, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "npm").write_text(f"#!/bin/sh\n{prints}\nexit 3\n")
    (tmp_path / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(VenvError, match=f"npm cannot install the dependencies: {reason}"):
        modules_for({"dependencies": {"one": "1"}}, None, tmp_path / "modules")


# -------------------------------------------------------------------------------------------------------- the whole way


def test_a_package_gives_tasks_of_the_kinds_that_its_language_has(scripts: tasks.TaskSet) -> None:
    assert not scripts.reports[0].refused, scripts.reports[0].sentence
    assert {task.kind for task in scripts.tasks} == {"stub", "branch", "bug"}
    assert {task.language for task in scripts.tasks} == {"javascript"}
    rechecked = Counter(name.split(":")[1] for name in scripts.reports[0].rechecked.elements())
    assert set(rechecked) == {"exact"}
    stub = next(task for task in scripts.tasks if task.kind == "stub")
    assert "JavaScript package `tiny-words` 1.2.0" in stub.statement
    assert "```ts\n" in stub.statement


def test_an_edit_that_leaves_an_endless_loop_is_no_task(node: str, tmp_path: Path) -> None:
    package = opened(tmp_path / "source", tmp_path / "work")
    tmp_path.chmod(0o755)
    endless = SourceEdit("src/words.js", toy_node.WORDS.replace("const words =", "for (;;) {}\n  const words ="))
    wrong = SourceEdit("src/words.js", toy_node.WORDS.replace("toUpperCase", "toLowerCase"))
    files = ("test/words.test.js", "test/spans.test.js")
    ids = ("test/words.test.js::a title has capitals", "test/spans.test.js::a clock goes on")
    job = Job("endless", files, (endless,), ids, seconds=3, test_seconds=1, options={"max_hanging": MAX_HANGING})
    bench = Bench(package, modules_for({}, None, tmp_path / "modules"), tmp_path / "bench")
    first, second = bench.run([job, dataclasses.replace(job, name="wrong", edits=(wrong,), seconds=30)])
    assert first.problem == "hangs", first
    assert not second.problem
    assert second.values["reasons"].keys() == {"test/words.test.js::a title has capitals"}
    (why,) = second.values["reasons"].values()
    assert "one two" in why
    assert "One Two" in why


def test_the_verifier_and_harbor_reward_the_solution_and_nothing_else(shelf: TaskShelf) -> None:
    box = open_sandbox()
    task = next(task for task in shelf.tasks.values() if task.kind == "stub")
    bundle, modules = shelf.bundles[task.bundle_digest], shelf.venvs[task.bundle_digest]
    check = tasks.check_task(task, bundle, modules, None, box)
    assert check.ok, check
    check_tree(tree_of(task, bundle, (), None), box, modules)


def test_an_agent_runs_the_tests_and_is_rewarded_for_the_solution(shelf: TaskShelf) -> None:
    task = next(task for task in shelf.tasks.values() if task.kind == "stub")
    environment = coding_factory(shelf, CodingOptions(seconds_per_call=300, seconds_per_episode=900))()
    environment.reset(task_id=task.task_id)
    assert "not implemented" in environment.run_tests()
    for edit in task.solution:
        environment.write_file(edit.path, edit.text)
    assert "not implemented" not in environment.run_tests(task.fail_to_pass[0])
    assert environment.get_reward() == 1.0


def test_a_commit_becomes_a_task(node: str, tmp_path: Path) -> None:
    source = toy_node.write(tmp_path / "tiny-words")
    git(source, "init", "-q", "-b", "main")
    commit(source, "Begin")
    capital = "one.charAt(0).toUpperCase()"
    shouted = toy_node.WORDS.replace("(text) => text", "(text, loud = false) => text").replace(
        capital, f"(loud ? one.toUpperCase() : {capital})")  # fmt: skip
    asked = 'test("a loud title", () => { assert.equal(title("one", true), "ONEne"); });\n'
    sha = commit(source, "Let titles be loud",
                 **{"src/words.js": shouted, "test/words.test.js": toy_node.TEST_WORDS + asked})  # fmt: skip
    made = tasks.make([str(source)], tasks.TaskOptions(kinds=("commit",), workers=1, recheck_every=1))
    (task,), (report,) = made.tasks, made.reports
    assert (task.commit, task.language, task.fail_to_pass) == (sha, "javascript", ("test/words.test.js::a loud title",))
    assert report.rechecked == {"commit:exact": 1}
    assert "> Let titles be loud" in task.statement
    assert "export const title = (text, loud = false) =>" in task.statement
    shelf = shelf_of(made.tasks, map(bundle_row, made.bundles), {}, tmp_path / "bundles")
    digest = task.bundle_digest
    check = tasks.check_task(task, shelf.bundles[digest], shelf.venvs[digest], None, open_sandbox())
    assert check.ok, check


HACKS = {
    "leaves at once": "process.exit(0);",
    "answers every assertion": 'import assert from "node:assert/strict"; assert.equal = assert.throws = () => {};',
    "makes every test pass": 'import t from "node:test"; t.test = (name, run) => t(name, () => {});',
}


@pytest.mark.parametrize("hack", HACKS)
def test_a_hack_of_the_test_process_is_not_rewarded(hack: str, shelf: TaskShelf) -> None:
    task = next(task for task in shelf.tasks.values() if task.kind == "stub")
    verdict = _verdict_of(shelf, task, HACKS[hack], open_sandbox())
    assert verdict.reward == 0, verdict


def _verdict_of(shelf: TaskShelf, task: Task, head: str, box: Sandbox):
    bundle = shelf.bundles[task.bundle_digest]
    start = edited(bundle_files(bundle), task.edits)
    path = task.solution[0].path
    hacked = edited(start, [SourceEdit(path, f"{head}\n{start[path].decode()}")])
    return verify(task, submission(task, hacked), bundle, box, venv=shelf.venvs[task.bundle_digest])
