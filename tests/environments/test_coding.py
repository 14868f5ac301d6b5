"""The coding environment: what its tools answer, that rollouts are apart, and that only solutions are rewarded."""

from __future__ import annotations

import base64
import dataclasses
import gc
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits
from composer_hub.environments import WorldOptions, check_environment, monitor, open_world
from composer_hub.environments.coding import CodingEnvironment, CodingOptions, coding_factory
from composer_hub.environments.guard import Broken
from composer_hub.environments.process import Completed, SandboxError
from composer_hub.environments.sandbox import Sandbox, open_sandbox
from composer_hub.environments.shelf import ShelfError, TaskShelf, open_shelf
from composer_hub.environments.trees import MAX_FILE, bundle_files
from composer_hub.environments.world import tools_of
from composer_hub.errors.find import find_errors
from composer_hub.hub import Card, FolderDestination, Table, publish
from composer_hub.records import JsonObject, Message, SourceEdit, Step, Task, ToolCall, Trace, features_of, to_row
from composer_hub.session import Session
from composer_hub.tasks.language import packed
from composer_hub.train.rollouts import Rollout
from tests.environments.hack_lab import hacked
from tests.environments.toy import TOYS, Toy


@pytest.fixture(scope="module", autouse=True)
def needs_a_sandbox() -> None:
    try:
        open_sandbox()
    except exits.Refused as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def shelf(plain_venv: Path, tmp_path_factory: pytest.TempPathFactory) -> TaskShelf:
    folder = tmp_path_factory.mktemp("bundles")
    toys = {toy.task.task_id: dataclasses.replace(toy.task, bundle_digest=toy.task.task_id) for toy in TOYS}
    bundles = {toy.task.task_id: toy.bundle(folder) for toy in TOYS}
    return TaskShelf(toys, bundles, dict.fromkeys(bundles, plain_venv))


@pytest.fixture
def environment(shelf: TaskShelf) -> CodingEnvironment:
    made = coding_factory(shelf, CodingOptions(seconds_per_call=10))()
    made.reset(task_id="durations-show")
    return made


def test_only_tools_are_public(environment: CodingEnvironment) -> None:
    assert sorted(tools_of(environment)) == ["read_file", "replace", "run", "run_tests", "search", "write_file"]


def test_a_scripted_agent_solves_every_toy(shelf: TaskShelf) -> None:
    make = coding_factory(shelf)
    environments = []
    for toy in TOYS:
        one = make()
        one.reset(task_id=toy.task.task_id)
        (gold,) = toy.task.solution
        function = toy.task.symbols[0].partition(":")[2]
        assert gold.path in one.search(f"def {function}")
        assert "NotImplementedError" in one.read_file(gold.path)
        assert one.write_file(gold.path, gold.text or "") == f"Wrote {gold.path}."
        assert "passed" in one.run_tests()
        environments.append(one)
    idle = make()
    idle.reset(task_id=TOYS[0].task.task_id)
    assert [one.get_reward() for one in [*environments, idle]] == [1.0, 1.0, 1.0, 0.0]
    assert [one._findings() for one in environments] == [[], [], []]


def test_errors_are_texts_that_the_error_finder_knows(environment: CodingEnvironment) -> None:
    (environment._root / "link").symlink_to("/etc/passwd")
    (environment._root / "binary").write_bytes(b"\xff\xfe\x00")
    answers = {
        "path_not_found": environment.read_file("missing.py"),
        "is_directory": environment.read_file("tests"),
        "edit_no_match": environment.replace("durations.py", "not there", "x"),
        "edit_ambiguous": environment.replace("durations.py", "\n", "x"),
        "edit_noop": environment.replace("durations.py", "show", "show"),
        "test_failure": environment.run_tests(),
        "command_not_found": environment.run("no-such-program"),
        "usage_error": environment.replace("binary", "a", "b"),
    }
    tools = dict(zip(answers, "read_file read_file replace replace replace run_tests run replace".split(), strict=True))
    assert {kind: kinds_of(tools[kind], text) for kind, text in answers.items()} == {
        kind: {kind} for kind in answers
    }, answers
    for path in ("link", "../x", "/etc/passwd", ""):
        assert environment.read_file(path).startswith("Error: ")
    assert environment.write_file("link", "x").startswith("Error: ")
    assert "root:" in Path("/etc/passwd").read_text()


def kinds_of(tool: str, result: str) -> set[str]:
    command = {"command": "no-such-program" if tool == "run" else "pytest"} if tool.startswith("run") else {"path": "x"}
    messages = (
        Message("assistant", "", tool_calls=(ToolCall(tool, command, "1"),)),
        Message("tool", result, name=tool, tool_call_id="1"),
    )
    step = Step("", 0, 0, ((0, 0),), (1,))
    trace = find_errors(Session(Trace("", "composer_rollout", "", messages, (step,)), {}), text_rules=True)
    return {site.kind for step in trace.steps for site in step.error_sites}


def test_a_path_that_a_program_prints_is_one_of_the_tree(environment: CodingEnvironment) -> None:
    place = environment.run("pwd")
    assert environment.read_file(f"{place}/durations.py") == environment.read_file("durations.py")
    assert environment.write_file(f"{place}/new.py", "x = 1\n").startswith("Wrote ")
    assert environment.replace(f"{place}/new.py", "x", "y").startswith("Replaced ")
    assert environment.read_file("new.py") == "y = 1\n"
    for path in (f"{place}//etc/passwd", f"{place}/../x", place):
        assert environment.read_file(path).startswith("Error: ")


def test_all_tests_are_those_that_the_agent_has(shelf: TaskShelf) -> None:
    new = SourceEdit("tests/test_new.py", "def test_new(): pass\n")
    task = dataclasses.replace(TOYS[1].task, bundle_digest=TOYS[1].task.task_id, hidden=(new,),
                               fail_to_pass=("tests/test_new.py::test_new",))  # fmt: skip
    one = coding_factory(dataclasses.replace(shelf, tasks={task.task_id: task}))()
    one.reset(task_id=task.task_id)
    assert "1 failed, 6 passed" in one.run_tests()


def test_a_large_file_is_not_taken_for_a_deleted_one(shelf: TaskShelf, tmp_path: Path) -> None:
    task = TOYS[1].task
    bundle = tmp_path / "bundle.tar.gz"
    bundle.write_bytes(packed({**bundle_files(shelf.bundles[task.task_id]), "data.bin": bytes(MAX_FILE + 1)}))
    one = coding_factory(dataclasses.replace(shelf, bundles={task.task_id: bundle}))()
    one.reset(task_id=task.task_id)
    one.run("true")
    one.run("echo > new")
    assert [[edit.path for edit in call.changes] for call in one._calls] == [[], ["new"]]
    one._keep([("run", one._calls[0].result)])
    assert one.run("ls").split() == ["conftest.py", "data.bin", "durations.py", "tests"]


def test_times_and_sizes_are_limited(shelf: TaskShelf) -> None:
    one = coding_factory(shelf, CodingOptions(seconds_per_call=0.5, seconds_per_episode=0.8, tree_mb=1))()
    one.reset(task_id="durations-show")
    assert one.run("sleep 5").startswith("Command timed out after")
    one.run("sleep 5")
    assert "used up" in one.read_file("durations.py")
    one.reset(task_id="durations-show")


def deep(environment: CodingEnvironment) -> str:
    code = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    return environment.run(f'python3 -c "{code}"')


def large(environment: CodingEnvironment) -> str:
    return environment.run("head -c 2000000 /dev/zero > big")


def many(environment: CodingEnvironment) -> str:
    return environment.run("mkdir many; touch many/{1..400}")


@pytest.mark.parametrize("spoil", [deep, large, many])
def test_an_agent_cannot_lose_its_episode_instead_of_failing(
    spoil: Callable[[CodingEnvironment], str], shelf: TaskShelf
) -> None:
    one = coding_factory(shelf, CodingOptions(tree_mb=1))()
    one.reset(task_id="durations-show")
    one.write_file("durations.py", TOYS[0].solution["durations.py"].decode())
    assert spoil(one).endswith("The episode is over.")
    assert one.run("rm -r *").endswith("The episode is over.")
    assert one.get_reward() == 0.0
    assert one._facts()["reward"] == 0.0
    home = one._home
    assert home is not None
    one.reset(task_id="durations-show")
    assert not home.exists()
    assert "durations.py" in one.run("ls")


def test_a_command_that_is_too_long_is_an_answer(environment: CodingEnvironment) -> None:
    assert "too long" in environment.run(f"echo {'x' * 3_000_000}")
    assert "too long" in environment.search("x" * 3_000_000)
    assert "durations.py" in environment.run("ls")


def test_rollouts_at_once_do_not_touch_each_other(shelf: TaskShelf) -> None:
    make = coding_factory(shelf)
    environments = [make() for _ in range(4)]

    def act(number: int) -> str:
        one = environments[number]
        one.reset(task_id="durations-show")
        one.write_file("mine", str(number))
        one.run(f"echo {number} > /tmp/shared; echo {number} > shared")
        return one.run("for i in mine shared; do cat $i; echo; done; ls /tmp/shared")

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(act, range(4)))
    assert [answer.split()[:5] for answer in answers] == [
        ["Exit", "code", "2", str(number), str(number)] for number in range(4)
    ]


def test_a_new_episode_and_the_end_leave_no_folder(shelf: TaskShelf) -> None:
    one = coding_factory(shelf)()
    homes = []
    for _ in range(2):
        one.reset(task_id="durations-show")
        homes.append(one._home or Path())
        one.run("mkdir -p a/b; touch a/b/c; chmod 0 a")
    assert [home.exists() for home in homes] == [False, True]
    del one
    gc.collect()
    assert not homes[1].exists()


def test_a_dropped_turn_is_taken_back_and_nothing_before_it(environment: CodingEnvironment) -> None:
    wrote = environment.write_file("durations.py", TOYS[0].solution["durations.py"].decode())
    environment.run("echo broken > durations.py; echo x > new.py")
    assert environment.get_reward() == 0.0
    kept = [{"role": "tool", "name": "write_file", "content": wrote}]
    # The trainer answers the second call of the dropped turn itself, so the environment has not seen it.
    calls = [{"type": "function", "function": {"name": name, "arguments": {}}} for name in ("run", "no_such_tool")]
    turns = [{"role": "assistant", "content": ""}, *kept, {"role": "assistant", "content": "", "tool_calls": calls}]
    assert Rollout([1], [2, 3, 4, 5], [1, 0, 0, 1], turns).num_dropped_calls == 2
    environment._keep([(one["name"], one["content"]) for one in kept])
    assert not (environment._root / "new.py").exists()
    assert environment.get_reward() == 1.0


def test_an_episode_tells_its_states_and_judges_no_text(environment: CodingEnvironment) -> None:
    environment.read_file("durations.py")
    environment.write_file("tests/test_durations.py", "def test_show(): pass\n")
    environment.run("git log -p")
    facts = environment._facts()
    assert (facts["task_id"], facts["reward"]) == ("durations-show", 0.0)
    assert [state["call"] for state in facts["states"]] == [0, 1]
    assert facts["states"][1]["changes"] == [{"path": "tests/test_durations.py", "text": "def test_show(): pass\n"}]
    assert facts["hack"] == []


def test_a_judge_of_findings_is_a_reward_function(shelf: TaskShelf) -> None:
    environments = [coding_factory(shelf)() for _ in range(2)]
    for one in environments:
        one.reset(task_id="durations-show")
    environments[1].write_file("durations.py", hacked(TOYS[1], "own plugin")["durations.py"].decode())
    judged = monitor.penalized(lambda found: float(len(found[0].rule)))
    assert judged([[], []], environments=environments) == [0.0, -9.0]
    assert monitor.penalty([[], []], environments=environments) == [0.0, -0.5]


def test_equal_submissions_are_verified_once(shelf: TaskShelf) -> None:
    make = coding_factory(shelf)
    environments = [make() for _ in range(3)]
    for one in environments:
        one.reset(task_id="wordtools-camel")
        one.run("touch not_editable.txt")
    assert [one.get_reward() for one in environments] == [0.0] * 3
    assert len(environments[0]._scorer._known) == 1


class Refusing:
    """A sandbox that cannot start in one tree, or nowhere."""

    def __init__(self, inner: Sandbox, root: Path | None) -> None:
        self.inner, self.root, self.isolation, self.has_own_user = inner, root, inner.isolation, inner.has_own_user

    def inside(self, root: Path) -> str:
        return self.inner.inside(root)

    def run(self, command: Sequence[str] | str, *, root: Path, **options: Any) -> Completed:
        if self.root in (root, None):
            raise SandboxError("no start")
        return self.inner.run(command, root=root, **options)


def test_a_tree_in_which_no_sandbox_starts_is_a_zero_and_a_machine_without_one_a_loss(
    environment: CodingEnvironment,
) -> None:
    inner = environment._sandbox
    environment._sandbox = Refusing(inner, environment._root)
    assert "cannot be used any more" in environment.run("true")
    assert environment.get_reward() == 0.0
    environment._sandbox = inner
    environment.reset(task_id="durations-show")
    environment._sandbox = Refusing(inner, None)
    with pytest.raises(Broken):
        environment.run("true")


# ---------------------------------------------------------------------------------------------------------- on the Hub


@dataclasses.dataclass(frozen=True)
class BundleRow:
    digest: str
    data: str
    requirements: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class OracleRow:
    task_id: str
    oracle: JsonObject


def published(folder: Path, *, toys: tuple[Toy, ...] = TOYS) -> FolderDestination:
    """Publish the toys as a version of tasks."""
    where = FolderDestination(folder / "hub")
    folder.mkdir(exist_ok=True)
    splits = ["train"] * (len(toys) - 1) + ["test"]
    tasks = [
        dataclasses.replace(toy.task, bundle_digest=toy.task.task_id, split=split)
        for toy, split in zip(toys, splits, strict=True)
    ]
    bundles = [BundleRow(toy.task.task_id, base64.b64encode(toy.bundle(folder).read_bytes()).decode()) for toy in toys]
    card = Card("traces", "Tasks", holes={"origin": "", "redaction": ""})
    publish(where, "me/tasks", [
        Table("tasks", [to_row(task) for task in tasks], features_of(Task), "task_id", split=None),
        Table("bundles", [to_row(bundle) for bundle in bundles], features_of(BundleRow), "digest"),
    ], card)  # fmt: skip
    return where


def test_a_version_of_tasks_is_a_world(tmp_path: Path, plain_venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    where = published(tmp_path)
    shelf = open_shelf("me/tasks", where, make_venv=lambda requirements: plain_venv)
    assert [row["task_id"] for row in shelf.rows("test")] == ["wordtools-camel"]
    assert shelf.pin.startswith("me/tasks@")
    one = coding_factory(shelf)()
    one.reset(**shelf.rows("all")[0])
    assert "passed" in one.run_tests() or "Exit code" in one.run("false")
    with pytest.raises(ShelfError, match="no task 'x'"):
        one.reset(task_id="x")


def test_wrong_names_are_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(exits.UsageError, match="--tasks"):
        check_environment("coding:")
    with pytest.raises(exits.ComposerError, match="me/none"):
        open_world("coding:me/none", where=FolderDestination(tmp_path), options=WorldOptions())


def test_hostile_names_and_words_do_not_break_an_episode(environment: CodingEnvironment) -> None:
    environment.run(
        "touch $'bad\\xff.py' $'new\\nline.py'; rm -r durations.py tests; mkdir durations.py; ln -s / tests"
    )
    with pytest.raises(ValueError, match="null"):
        environment.run("echo \0")
    open_files = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(ValueError, match="null"):
            environment.run("echo \0")
    assert len(os.listdir("/proc/self/fd")) == open_files
    assert environment.read_file("durations.py").endswith("is a directory.")
    assert {edit.path for edit in environment._calls[-1].changes} == {"durations.py", "tests/test_durations.py"}
    assert environment.get_reward() == 0.0
    json.dumps(environment._facts(), ensure_ascii=False).encode()


def test_the_callers_environment_is_not_seen(environment: CodingEnvironment) -> None:
    os.environ["COMPOSER_SECRET_TOKEN"] = "s3cret"
    try:
        assert "s3cret" not in environment.run("env")
    finally:
        del os.environ["COMPOSER_SECRET_TOKEN"]
