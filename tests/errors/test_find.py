"""The sites of a session: what follows from several calls, and what must hold for any session."""

# ruff: noqa: E501  # a case is one line

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.errors.excerpts import MAX_MESSAGE_CHARS
from composer_hub.errors.find import find_errors
from composer_hub.errors.rules import STATUSES
from composer_hub.errors.vocabulary import KINDS
from composer_hub.records import Message, Step, ToolCall, Trace
from composer_hub.session import Session
from tests.errors.examples import EXITS, HARNESS
from tests.errors.sessions import FILE, TRACEBACK, Made, blames, flag, session_of, shell, sites
from tests.quick import cases

STABLE = cases(100)


def test_a_call_without_a_result_dangles_unless_it_ends_the_session() -> None:
    (site,) = sites(("Bash", {"command": "ls"}, None, None))
    assert (site.kind, site.blame) == ("dangling_call", "harness")
    assert sites(("submit", {}, None, None)) == []


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("look-around is not supported", "tool_error"),
        ("StatusCode: non 2xx status code (404 GET https://example.com/a)", "network_or_remote"),
        ("MCP error -32602: Input validation error: query is required", "schema_validation"),
    ],
)
def test_an_unnamed_failure_of_a_tool_is_not_the_models(said: str, kind: str) -> None:
    after = {"path": "/w", "pattern": "b"}
    (site,) = sites(("fetch", {"path": "/w", "pattern": "a"}, said, flag(True)), ("fetch", after, "b", flag(False)))
    assert (site.kind, site.blame) == (kind, KINDS[kind])


NO_MATCH = ("Edit", FILE, "<tool_use_error>String to replace not found in file.</tool_use_error>", None)


OTHER_NO_MATCH = ("Edit", {"file_path": "/repo/b.py"}, "String to replace not found in file.", None)


def test_the_third_failure_in_a_row_is_a_repeated_failure() -> None:
    found = sites(NO_MATCH, NO_MATCH, shell("ls", "a"), NO_MATCH, NO_MATCH)
    assert [site.kind for site in found if site.kind == "repeated_failure"] == ["repeated_failure"] * 2
    third = next(site for site in found if site.kind == "repeated_failure")
    assert third.call_id == "call-3"
    assert "3 times in a row" in third.message


def test_failures_on_other_targets_or_with_other_words_are_not_repeated() -> None:
    missing = [shell(f"cat {name}", f"Exit code 1\ncat: {name}: No such file or directory") for name in "abcd"]
    wrong = [shell("gh pr view", f"Exit code 1\nunknown flag: --{name}") for name in ("json", "jsn", "web")]
    for made in ([NO_MATCH, OTHER_NO_MATCH, NO_MATCH, OTHER_NO_MATCH], missing, wrong):
        assert "repeated_failure" not in [site.kind for site in sites(*made)]


def test_numbers_do_not_make_other_words() -> None:
    crashes = [
        shell("python -c 'slots[n]'", f"Exit code 1\nTraceback (most recent call last):\nNameError: slots{n}")
        for n in range(3)
    ]
    assert [site.kind for site in sites(*crashes)][-1] == "repeated_failure"


def test_a_rebase_that_moves_from_conflict_to_conflict_is_not_repeated_failure() -> None:
    stops = [
        shell(
            "git rebase --continue",
            f"Exit code 1\nCONFLICT (content): Merge conflict in a.py\nerror: could not apply 1f2e3d{n}... x",
        )
        for n in range(4)
    ]
    found = sites(*stops)
    assert {(site.kind, site.blame) for site in found} == {("merge_conflict", "outcome")}
    assert len(found) == 4


def test_a_success_between_two_failures_starts_the_count_again() -> None:
    worked = ("Edit", FILE, "The file has been updated.", None)
    assert "repeated_failure" not in [site.kind for site in sites(NO_MATCH, NO_MATCH, worked, NO_MATCH)]


def test_what_a_person_or_the_environment_stopped_does_not_count_as_repeated() -> None:
    rejected = ("Edit", FILE, "The user doesn't want to proceed with this tool use.", None)
    empty = shell("grep x a", "Exit code 1\n")
    assert "repeated_failure" not in [site.kind for site in sites(*[rejected] * 4, *[empty] * 4)]


def test_parallel_failures_of_one_step_count_once() -> None:
    calls = tuple(ToolCall("Read", {"file_path": f"/{i}"}, f"p{i}") for i in range(3))
    messages = (
        Message("assistant", tool_calls=calls),
        *(Message("tool", "File does not exist.", tool_call_id=f"p{i}") for i in range(3)),
    )
    trace = Trace("t", "x", "s", messages, (Step("s", 0, 0, (), (1, 2, 3)),))
    found = find_errors(Session(trace, {})).steps[0].error_sites
    assert [site.kind for site in found] == ["path_not_found"] * 3


def test_the_third_equal_read_with_an_equal_result_is_a_repeated_call() -> None:
    read = ("Read", {"file_path": "/repo/a.py"}, "x", None)
    found = sites(*[read] * 4)
    assert [(site.kind, site.call_id) for site in found] == [("repeated_call", "call-2"), ("repeated_call", "call-3")]
    assert sites(read, ("Read", {"file_path": "/repo/a.py"}, "y", None), read) == []


def test_a_command_or_a_poll_that_is_repeated_may_be_waiting() -> None:
    assert sites(*[shell("gh run view 7", "in progress")] * 4) == []
    assert sites(*[("BashOutput", {"bash_id": "1"}, "", None)] * 5) == []


STARTED = shell(
    "mise run test", "Command running in background with ID: b1. Output is being written to: /tmp/b1.output"
)


POLLED = "<status>completed</status>\n\n<exit_code>1</exit_code>\n\n<stdout>\n--- FAIL: TestA (0.0s)\nFAIL\n</stdout>"


def test_a_poll_is_judged_by_the_command_that_it_asks_about() -> None:
    poll = ("BashOutput", {"bash_id": "b1"}, POLLED, flag(is_error=False))
    running = ("BashOutput", {"bash_id": "b1"}, POLLED.replace("completed", "running"), flag(is_error=False))
    (site,) = sites(STARTED, running, poll)
    assert (site.kind, site.blame, site.tool) == ("test_failure", "outcome", "BashOutput")
    done = ("BashOutput", {"bash_id": "b1"}, POLLED.replace(">1<", ">0<"), flag(is_error=False))
    assert sites(STARTED, done) == []


def test_a_command_that_still_runs_has_no_outcome_yet() -> None:
    begun = (
        "exec_command",
        {"cmd": "pytest"},
        "Wall time: 1.0 seconds\nProcess running with session ID 7\nOutput:\n",
        flag(exit_code=1),
    )
    ended = (
        "write_stdin",
        {"session_id": 7},
        "Process exited with code 1\nOutput:\n=== 1 failed in 0.1s ===\n",
        flag(exit_code=1),
    )
    (site,) = sites(begun, ended)
    assert (site.kind, site.tool) == ("test_failure", "write_stdin")


def test_a_rewound_branch_does_not_count_for_the_other() -> None:
    session = session_of(NO_MATCH, NO_MATCH, NO_MATCH)
    first, second, third = session.trace.steps
    rewound = Step("s2", 2, third.action, ((0, 1),), third.results)
    trace = Trace("t", "x", "s", session.trace.messages, (first, second, rewound))
    kinds = [site.kind for step in find_errors(Session(trace, {})).steps for site in step.error_sites]
    assert kinds == ["edit_no_match"] * 3


def test_a_provider_error_and_a_cut_answer_stand_on_the_action() -> None:
    session = session_of(shell("ls", "a"), shell("pwd", "/"))
    flags = {1: flag(status="max_tokens"), 3: flag(is_error=True, detail="overloaded")}
    trace = find_errors(Session(session.trace, flags))
    assert [(site.kind, site.blame) for step in trace.steps for site in step.error_sites] == [
        ("truncated_output", "provider"),
        ("api_error", "provider"),
    ]


SPELLED_OUT = {
    "SWE-smith": ("Look.\n\n<function=bash>\n<parameter=command>cat nope</parameter>\n</function>", "bash", "OBSERVATION:\ncat: nope: No such file or directory"),
    "mini-swe-agent": ("THOUGHT: look\n\n```mswea_bash_command\ncat nope\n```", "bash", "<returncode>1</returncode>\n<output>\ncat: nope: No such file or directory\n</output>"),
    "SWE-agent": ("Look.\n```\ncat nope\n```", "bash", "cat: nope: No such file or directory"),
}  # fmt: skip


@pytest.mark.parametrize("harness", SPELLED_OUT)
def test_a_call_spelled_out_in_text_has_its_observation_as_result(harness: str) -> None:
    text, tool, observation = SPELLED_OUT[harness]
    messages = (Message("user", "Do it."), Message("assistant", text), Message("user", observation))
    trace = Trace("t", "x", "s", messages, (Step("a", 0, 1, ((0, 1),), (2,)),))
    (site,) = find_errors(Session(trace), text_rules=True).steps[0].error_sites
    assert (site.kind, site.tool, site.call_id) == ("path_not_found", tool, "")
    assert site.message == "cat: nope: No such file or directory"


def test_a_typed_word_of_a_text_protocol_names_the_kind() -> None:
    edit = "a/b.py\n```python\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n```"
    messages = (Message("assistant", edit), Message("user", "The SEARCH block failed."))
    trace = Trace("t", "aider", "s", messages, (Step("a", 0, 0, (), (1,)),))
    found = find_errors(Session(trace, {1: flag(True, status="failed", detail="edit_no_match")}))
    (site,) = found.steps[0].error_sites
    assert (site.kind, site.tool, site.source) == ("edit_no_match", "edit", "flag")


def test_a_refused_form_is_read_from_the_reply_where_no_tool_answers() -> None:
    messages = (
        Message("user", "Do it."),
        Message("assistant", "I will look around."),
        Message("user", "Please always provide EXACTLY ONE action in triple backticks, found 0 actions."),
        Message("assistant", "ls"),
    )
    steps = (Step("a", 0, 1, ((0, 1),)), Step("b", 1, 3, ((0, 3),)))
    trace = find_errors(Session(Trace("t", "mini", "s", messages, steps), {}))
    assert [[site.kind for site in step.error_sites] for step in trace.steps] == [["format_error"], []]


FRAGMENTS = [text for _, _, _, text in HARNESS] + [output for *_, output in EXITS] + ["", "ok", TRACEBACK, "x" * 3000]


NAMES = ["Bash", "Edit", "Read", "str_replace_editor", "mcp__a__b", "", "apply_patch", "Task"]


ARGUMENTS = st.one_of(
    st.none(), st.text(max_size=30), st.integers(), st.lists(st.text(max_size=5), max_size=3),
    st.dictionaries(st.sampled_from(["command", "path", "file_path", "cmd"]), st.one_of(st.text(max_size=40), st.none(), st.integers(), st.lists(st.text(max_size=5), max_size=4)), max_size=3),
)  # fmt: skip


RESULTS = st.one_of(st.none(), st.sampled_from(FRAGMENTS), st.text(max_size=200), st.tuples(st.text(max_size=900), st.sampled_from(FRAGMENTS)).map("\n".join))  # fmt: skip


FLAGS = st.one_of(
    st.none(),
    st.builds(
        flag, st.sampled_from([True, False, None]), st.one_of(st.none(), st.integers(-9, 300)),
        st.one_of(st.sampled_from(["", "error", "completed", *STATUSES]), st.text(max_size=9)),
    ),
)  # fmt: skip


@STABLE
@given(st.lists(st.tuples(st.sampled_from(NAMES), ARGUMENTS, RESULTS, FLAGS), max_size=6), st.booleans())
def test_sites_belong_to_their_step_and_stay_short(made: Sequence[Made], text_rules: bool) -> None:
    session = session_of(*made)
    trace = find_errors(session, text_rules=text_rules)
    assert len(trace.steps) == len(session.trace.steps)
    for step in trace.steps:
        own = {call.call_id for call in trace.messages[step.action].tool_calls}
        for site in step.error_sites:
            assert site.call_id in own | {""}
            assert site.blame in blames(site.kind)
            assert site.source in ("flag", "anchor", "exit", "text")
            assert 0 < site.confidence <= 1
            assert len(site.message) <= MAX_MESSAGE_CHARS
    assert find_errors(Session(trace, session.flags), text_rules=text_rules) == trace


def test_huge_and_hostile_results_take_no_time_to_speak_of() -> None:
    hostile = [
        "((" * 500_000,
        "Error: " * 300_000,
        "a: " * 500_000,
        "\n" * 2_000_000,
        "Command: x\n" * 200_000,
        "'" * 900_000,
    ]
    for text in hostile:
        assert len(sites(shell(text[:300_000], text, flag(is_error=True)), text_rules=True)) == 1


DONE = "Script completed\nWall time 0.5 seconds\nOutput:\n\n"


def script(text: str, result: str) -> Made:
    return ("exec", {"input": text}, DONE + result, None)


def test_a_failed_test_in_a_script_is_found_without_an_exit_code():
    run = "const r = await tools.exec_command({cmd: 'uv run --frozen pytest -q'}); text(r.output);"
    (site,) = sites(
        script(run, "F.\n=== short test summary info ===\nFAILED a.py::test - no\n1 failed, 1 passed in 0.1s")
    )
    assert (site.kind, site.blame, site.tool, site.call_id) == ("test_failure", "outcome", "exec_command", "call-0")


def test_each_command_of_a_script_has_the_site_of_its_own_outcome():
    run = "const rs = await Promise.all([tools.exec_command({cmd: 'cat x'}), tools.exec_command({cmd: 'make test'})]);"
    shown = '{"exit_code":1,"output":"cat: x: No such file or directory"}\n{"exit_code":2,"output":"1 failed"}'
    found = sites(script(f"{run} rs.forEach(r => text(r));", shown))
    assert [site.kind for site in found] == ["path_not_found", "test_failure"]


def test_polls_and_waits_are_no_repetitions():
    poll = script("text((await tools.write_stdin({session_id: 4, chars: ''})).output);", "")
    wait: Made = ("wait", {"cell_id": "4"}, "Script running with cell ID 4\nWall time 10.0 seconds\nOutput:\n", None)
    loop = script("while (busy()) await tools.write_stdin({session_id: ids[0]});", "")
    assert not sites(*[poll] * 5, *[wait] * 5, *[loop] * 5)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("TypeError: tools.lst is not a function\n    at exec_main.mjs:1:9", "tool_not_found"),
        ("SyntaxError: Unexpected end of input", "format_error"),
        ("TypeError: Cannot read properties of undefined (reading 'map')", "runtime_exception"),
        ("apply_patch verification failed: Failed to find expected lines in a.py:\nx", "edit_no_match"),
        ("write_stdin failed: Unknown process id 4", "usage_error"),
        (
            "exec_command failed for `/bin/bash -lc 'rm -f x\nls'`: CreateProcess "
            '{ message: "Rejected(\\"`/bin/bash -lc \'rm -f x\nls\'` rejected: not permitted\\")" }',
            "policy_denied",
        ),
    ],
)
def test_the_error_of_a_script_names_who_refused_it(error, kind):
    text = (
        "text(await tools.exec_command({cmd: 'ls'})); text(await tools.apply_patch('x')); await tools.write_stdin({});"
    )
    header = "Script failed\nWall time 0.0 seconds\nOutput:\n\nScript error:\n"
    (site,) = sites(("exec", {"input": text}, header + error, None))
    assert site.kind == kind
