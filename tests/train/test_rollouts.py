"""Error sites and hints of rollouts that are written by hand."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub import exits
from composer_hub.environments import guarded, tools_of
from composer_hub.exits import ComposerError
from composer_hub.hints.writers import SiteContext, from_sibling
from composer_hub.records import Hint
from composer_hub.train.failure import TrainerError
from composer_hub.train.hinting import REASONS, Hinter, TemplateError, own_writer
from composer_hub.train.rollouts import Rollout, error_finders, message_of
from composer_hub.train.run.export import RunFacts, Scored, to_trace

GENERATION = [90, 91]  # what the template ends a prompt with


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def acted(*calls: Any, said: str = "") -> dict[str, Any]:
    return {"role": "assistant", "content": said, **({"tool_calls": list(calls)} if calls else {})}


def answered(name: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "name": name, "content": content}


def rollout(*messages: dict[str, Any], **facts: Any) -> Rollout:
    """Give each assistant message three tokens of its own and each block of tool messages two of the template."""
    ids, mask = [], []
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            ids += [10 + number] * 3
            mask += [1] * 3
        elif messages[number - 1]["role"] == "assistant" and number + 1 < len(messages):
            ids += GENERATION
            mask += [0] * 2
    return Rollout([1, 2, *GENERATION], ids, mask, messages, **facts)


def kinds(given: Rollout, text: str = "") -> list[tuple[int, str]]:
    texts = dict.fromkeys(range(len(given.trace.steps)), text)
    steps = dataclasses.replace(given, texts=texts).trace.steps
    return [(step.index, site.kind) for step in steps for site in step.error_sites]


def test_each_assistant_message_owns_one_run_of_sampled_tokens() -> None:
    given = rollout(acted(call("f")), answered("f", "ok"), acted(said="done"))
    assert given.spans == [(0, 3), (5, 8)]
    assert [(step.action, step.results, step.prefix_exact) for step in given.trace.steps] == [
        (0, (1,), True),
        (2, (), True),
    ]


def test_a_site_names_its_call_by_the_place_that_the_call_has_in_the_rollout() -> None:
    missing = answered("f", "{'error': 'Tool f not found.'}")
    given = rollout(
        acted(call("g")),
        answered("g", "ok"),
        acted(call("f", a=1), call("g"), call("f", a=1)),
        answered("g", "ok"),
        missing,
        missing,
        acted(said="done"),
    )
    trace = to_trace(given, Scored([], 0, 0, {}, None), RunFacts("run", "small", "sha"))
    assert [site.call_id for site in trace.steps[1].error_sites] == ["call_2", "call_4"]
    assert [trace.messages[at].tool_call_id for at in trace.steps[1].results] == ["call_3", "call_2", "call_4"]
    assert [call.call_id for call in trace.messages[2].tool_calls] == ["call_2", "call_3", "call_4"]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("{'error': 'Tool plus not found.'}", "tool_not_found"),
        ("{'error': \"f() missing 1 required positional argument: 'a'\"}", "schema_validation"),
        ("{'error': \"f() got an unexpected keyword argument 'x'\"}", "schema_validation"),
        ("{'error': 'disk on fire'}", "runtime_exception"),
    ],
    ids=["unknown tool", "missing argument", "unknown argument", "an exception"],
)
def test_exceptions_that_the_tool_loop_reports_are_errors(said: str, kind: str) -> None:
    assert kinds(rollout(acted(call("plus")), answered("plus", said), acted(said="oh"))) == [(0, kind)]


RAISED = "usage: grade run [-h] --src FILE\ngrade run: error: the following arguments are required: --src\nexit code 2"


def test_a_raised_result_with_an_exit_code_is_read_like_a_returned_one() -> None:
    as_json = json.dumps({"exit_code": 2, "stderr": RAISED.rpartition("\n")[0]})
    found = [
        rollout(acted(call("bash", command="grade run --file a")), answered("bash", said), END)
        .trace.steps[0]
        .error_sites[0]
        for said in (RAISED, str({"error": RAISED}), as_json, str({"error": as_json}))
    ]
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert found[0].kind == found[2].kind
    assert (found[0].kind, found[0].message.partition(" ")[0]) == ("usage_error", "usage:")


@pytest.mark.parametrize("key", ["error", "message", "reason"])
def test_a_hint_quotes_the_words_of_a_failed_result_whatever_their_key(key: str) -> None:
    result = json.dumps({"exit_code": 2, "stdout": "", key: RAISED.rpartition("\n")[0]})
    wrong, right = (call("bash", command=f"grade run {option} a.txt") for option in ("--file", "--src"))
    played = rollout(acted(wrong), answered("bash", result), acted(right), answered("bash", "done"), END)
    (site,) = hinter().sites(played)
    assert site.hint.text.splitlines()[1:] == RAISED.splitlines()[:2]


def test_a_raised_report_of_tests_is_an_outcome() -> None:
    said = str({"error": "FAILED tests/test_a.py::test_b - assert 1 == 2"})
    assert kinds(rollout(acted(call("run_tests")), answered("run_tests", said), END)) == [(0, "test_failure")]


def test_a_hint_quotes_what_was_raised_and_not_its_wrapping() -> None:
    wrong, right = (call("bash", command=f"grade run {option} a.txt") for option in ("--file", "--src"))
    raised = str({"error": RAISED})
    played = rollout(acted(wrong), answered("bash", raised), acted(right), answered("bash", "done"), END)
    (site,) = hinter().sites(played)
    assert site.hint.text.splitlines()[1:] == RAISED.splitlines()[:2]
    assert played.trace.messages[1].content == raised  # as the model read it


def test_markup_that_did_not_parse_is_an_error() -> None:
    assert kinds(rollout(acted(said="x")), '<tool_call>{"name": "add", </tool_call>') == [(0, "json_decode")]


@pytest.mark.parametrize(
    "said",
    [
        '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1',
        '<|python_tag|>{"name": "add", "parameters": {"a": 1}',
        '{"name": "add", "parameters": {"a": 1',
        '{"type": "function", "name": "add", "parameters": {"a": }}',
        "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>add",
        '<\uff5cDSML\uff5cfunction_calls>\n<\uff5cDSML\uff5cinvoke name="add">',
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0",
    ],
    ids=["gpt-oss", "Llama 3.1", "Llama 3.2", "Llama 3 with a type", "DeepSeek V3", "DeepSeek V3.2", "Kimi"],
)
def test_markup_of_other_families_that_did_not_parse_is_an_error(said: str) -> None:
    assert kinds(rollout(acted(said="x")), said) == [(0, "json_decode")]


@pytest.mark.parametrize("said", ['{"name": "Ada", "age": 3}', '{"name": "x"}', "Use the tool `add`.", "a | b <| c"])
def test_an_answer_that_only_looks_like_a_call_is_not_an_error(said: str) -> None:
    assert kinds(rollout(acted(said="x")), said) == []


@pytest.mark.parametrize(
    ("tool", "said", "kind"),
    [
        ("bash", '{"exit_code": 2, "output": "usage: x [-h]\\nx: error: unrecognized arguments: -q"}', "usage_error"),
        ("check", '{"stdout": "", "returncode": 1}', "nonzero_exit"),
        ("bash", "(exit code 1)\nSyntaxError: invalid syntax", "runtime_exception"),
        ("bash", "[exit 127] foo: command not found", "command_not_found"),
        ("run", "Permission denied\nReturn code: 1", "permission_denied"),
        ("bash", "bash: foo: command not found\nProcess exited with code 127", "command_not_found"),
        ("run_tests", "FAILED tests/test_a.py::test_b - assert 1 == 2\n1 failed in 0.1s", "test_failure"),
        ("edit_file", "No replacement was performed.", "edit_no_match"),
    ],
)
def test_results_of_own_tools_that_say_that_they_failed_are_errors(tool: str, said: str, kind: str) -> None:
    assert [found for _, found in kinds(rollout(acted(call(tool)), answered(tool, said), END))] == [kind]


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("bash", '{"exit_code": 0, "output": "fine"}'),
        ("bash", "(exit code 0)\nfine"),
        ("bash", '{"exit_code": true}'),
        ("read_file", "FAILED tests/test_a.py::test_b - assert 1 == 2"),
        ("bash", "the exit code 1 means that nothing was found"),
        ("bash", "FAILED to convince me"),
    ],
)
def test_results_of_own_tools_that_only_mention_failures_are_not_errors(tool: str, said: str) -> None:
    assert kinds(rollout(acted(call(tool)), answered(tool, said), END)) == []


class Picky:
    def reset(self) -> None: ...

    def look(self, at: str) -> str:
        """Look.

        Args:
            at: Where.
        """
        return f"nothing at {at}"

    def get_reward(self) -> float:
        return 0.0

    def failed(self, result: str) -> str | None:
        return "the place is empty" if result.startswith("nothing") else None


def test_an_environment_says_that_a_call_failed_and_the_model_never_sees_how() -> None:
    environment = guarded(Picky, "picky", timeout_s=None)()
    public = [name for name, _ in inspect.getmembers(type(environment), inspect.isfunction) if name[0] != "_"]
    assert sorted(public) == ["get_reward", "look", "reset"]
    assert sorted(tools_of(Picky())) == ["look"]
    messages = [acted(call("look", at="x")), answered("look", "nothing at x"), acted(call("look", at="y"))]
    given = rollout(*messages, answered("look", "a door"), END)
    parts = (given.prompt_ids, given.completion_ids, given.tool_mask, given.messages)
    seen = Rollout.of(*parts, str, error_finders=error_finders(environment))
    ((step, site),) = [(step.index, site) for step in seen.trace.steps for site in step.error_sites]
    assert (step, site.kind, site.blame, site.rule) == (0, "runtime_exception", "model", "rollout.environment_said")
    assert site.message == "the place is empty\nnothing at x"

    def out_of_bounds(tool: str, arguments: Any, result: str) -> str | None:
        return "usage_error" if arguments.get("at") == "y" else None

    seen = Rollout.of(*parts, str, error_finders=error_finders(None, out_of_bounds))
    assert [(step.index, site.kind) for step in seen.trace.steps for site in step.error_sites] == [(1, "usage_error")]


def test_a_text_from_a_writer_of_ones_own_is_a_hint() -> None:
    (site,) = rollout(acted(call("f")), answered("f", "{'error': 'no'}"), END).trace.steps[0].error_sites
    context = SiteContext(site)
    assert own_writer("mine:remind", lambda context: f"Mind {context.site.tool}.")(context) == Hint(
        "Mind f.", "remind", "own", 1, site.kind, site.call_id
    )
    assert own_writer("mine:remind", lambda context: None)(context) is None
    with pytest.raises(exits.ComposerError, match="hint writer mine:remind raised ZeroDivisionError"):
        own_writer("mine:remind", lambda context: 1 / 0)(context)


def test_a_call_that_ran_out_of_tokens_was_not_written_wrongly() -> None:
    assert kinds(rollout(acted(said="x"), cut_off=True), '<tool_call>{"name": "ad') == []


def test_output_of_the_environment_follows_the_rules_for_recorded_sessions() -> None:
    said = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no'
    assert kinds(rollout(acted(call("bash", command="python a.py")), answered("bash", said), acted(said="oh"))) != []


def test_a_result_that_was_dropped_is_an_error_of_the_call() -> None:
    assert kinds(rollout(acted(call("cat", path="/big")))) == [(0, "output_limit")]
    assert kinds(rollout(acted(call("cat", path="/big")), rounds_used_up=True)) == []
    assert rollout(acted(call("cat", path="/big"), call("ls"))).num_dropped_calls == 2
    assert rollout(acted(call("ls")), answered("ls", "a"), END).num_dropped_calls == 0


def test_a_call_that_is_repeated_with_the_same_result_is_an_error_the_third_time() -> None:
    same = (acted(call("read_file", path="x")), answered("read_file", "nothing new"))
    assert kinds(rollout(*same, *same, *same, END)) == [(2, "repeated_call")]


def test_a_tool_that_answers_with_a_word_like_error_is_not_an_error() -> None:
    assert kinds(rollout(acted(call("f")), answered("f", "{'error': 0, 'rows': 3}"), acted(said="fine"))) == []
    assert kinds(rollout(acted(call("add", a=1, b=2)), answered("add", "3"), acted(said="3"))) == []


def test_a_message_is_valid_unicode_however_its_arguments_come() -> None:
    functions = [{"name": "add", "arguments": value} for value in ({"a": "\ud800"}, '{"a": "\\ud800"}')]
    message = message_of({"role": "assistant", "tool_calls": [{"function": one} for one in functions]})
    assert [one.arguments for one in message.tool_calls] == [{"a": "\ufffd"}] * 2


def test_results_belong_to_the_calls_of_their_name() -> None:
    given = rollout(
        acted(call("slow"), call("quick")),
        answered("quick", "ok"),
        answered("slow", "{'error': 'late'}"),
        acted(said="x"),
    )
    (site,) = given.trace.steps[0].error_sites
    assert (site.tool, site.call_id, site.message) == ("slow", "call_1", "late")


# ----------------------------------------------------------------------------------------------------------- hinting


def template(messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> list[int]:
    ids = [token for message in messages for token in (80, *map(ord, message["content"]))]
    return ids + (GENERATION if add_generation_prompt else [])


def hinter(**options: Any) -> Hinter:
    tool = {"function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    return Hinter(apply_template=template, tools=(tool,), **options)


WRONG = (acted(call("plus")), answered("plus", "{'error': 'Tool plus not found.'}"))
RIGHT = (acted(call("add", a=1, b=2)), answered("add", "3"))
END = acted(said="3")


def test_a_hint_comes_between_the_prompt_and_the_generation_prompt() -> None:
    (site,) = hinter().sites(rollout(*WRONG, END))
    assert list(site.prefix_ids) == [1, 2, *GENERATION]
    assert list(site.hinted_ids) == [1, 2, 80, *map(ord, site.hint.text), *GENERATION]
    assert list(site.teacher_ids[-3:]) == list(site.action_ids) == [10, 10, 10]
    assert "`add`" in site.hint.text


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_more_sites_than_allowed_and_the_first_ones(most: int) -> None:
    found = hinter(max_sites=most).sites(rollout(*WRONG, *WRONG, *WRONG, END))
    assert [site.step for site in found] == list(range(min(most, 3)))


def test_a_hint_longer_than_the_window_leaves_its_site_out() -> None:
    assert hinter(max_teacher_tokens=20).sites(rollout(*WRONG, END)) == []


def test_failed_turns_that_are_not_learned_from_are_counted_by_reason() -> None:
    twice = rollout(*WRONG, *WRONG, END)
    for settings, reasons in (
        ({}, {"later": 1}),
        ({"max_sites": 2}, {}),
        ({"max_sites": 2, "max_teacher_tokens": 20}, {"too_long": 2}),
        ({"max_sites": 2, "writers": ()}, {"no_hint": 2}),
        ({"max_sites": 2, "refused": frozenset({("quoted", "tool_not_found")})}, {"refused": 2}),
    ):
        left_out: Counter[str] = Counter()
        sites = hinter(**settings).sites(twice, left_out=left_out)
        assert left_out == reasons
        assert set(left_out) <= set(REASONS)
        assert len(sites) == 2 - sum(reasons.values())


def test_a_refused_writer_writes_nothing() -> None:
    (site,) = hinter().sites(rollout(*WRONG, END))
    assert hinter(refused=frozenset({(site.hint.writer, site.hint.kind)})).sites(rollout(*WRONG, END)) == []


def test_the_corrected_action_is_the_next_call_that_worked_here_or_at_a_sibling() -> None:
    (own,) = hinter().sites(rollout(*WRONG, *RIGHT, END))
    assert list(own.corrected_ids) == [12, 12, 12]
    (other,) = hinter().sites(rollout(*WRONG, END), sibling=rollout(*RIGHT, END))
    assert list(other.corrected_ids) == [10, 10, 10]
    (neither,) = hinter().sites(rollout(*WRONG, END))
    assert not neither.corrected_ids


def test_a_correction_that_does_not_fit_into_the_window_is_left_out() -> None:
    right = rollout(*RIGHT, END)
    long = dataclasses.replace(
        right, completion_ids=[10] * 50 + [20], tool_mask=[1] * 50 + [0], messages=right.messages[:2]
    )
    (fits,) = hinter().sites(rollout(*WRONG, END), sibling=long)
    assert len(fits.corrected_ids) == 50
    (site,) = hinter(max_teacher_tokens=len(fits.hinted_ids) + 49).sites(rollout(*WRONG, END), sibling=long)
    assert (site.teacher_ids, list(site.corrected_ids)) == (fits.teacher_ids, [])


def test_a_better_sibling_gives_the_hint_if_no_writer_has_one() -> None:
    (site,) = hinter(writers=()).sites(rollout(*WRONG, END), sibling=rollout(*RIGHT, END))
    assert site.hint.writer == "sibling"
    assert 'add {"a":1,"b":2}' in site.hint.text.replace(" ", "").replace("add{", "add {")
    assert hinter(writers=()).sites(rollout(*WRONG, END)) == []
    assert from_sibling(rollout(*WRONG, END).trace.steps[0].error_sites[0], rollout(END).trace, 0) is None


def test_only_the_call_of_a_sibling_that_worked_is_quoted() -> None:
    (site,) = hinter(writers=()).sites(rollout(*WRONG, END), sibling=rollout(*WRONG, *RIGHT, END))
    assert ": add " in site.hint.text
    assert hinter(writers=()).sites(rollout(*WRONG, END), sibling=rollout(*WRONG, END)) == []


def test_a_site_for_which_the_template_has_no_place_is_left_out_and_counted() -> None:
    given = rollout(*WRONG, END)
    odd = Rollout([1, 2, 3], given.completion_ids, given.tool_mask, given.messages)
    left_out: Counter[str] = Counter()
    assert hinter().sites(odd, left_out=left_out) == []
    assert left_out == {"no_place": 1}
    with pytest.raises(TemplateError, match="has no place"):
        hinter().hinted([1, 2, 3], "x")


def test_code_of_the_user_that_fails_is_named_in_one_sentence() -> None:
    def finder(tool: str, arguments: Any, result: str) -> str | None:
        raise KeyError(tool)

    talk = [{"role": "tool", "name": "add", "content": "3"}]
    with pytest.raises(TrainerError, match=r"raised KeyError: 'add', at a result of add\. Fix it"):
        Rollout.of([1], [2], [1], talk, str, error_finders=[finder])
    with pytest.raises(ComposerError, match=r"The hint writer own:write returned 5\. Return a text"):
        own_writer("own:write", lambda context: 5)(None)  # type: ignore[arg-type]
