"""What a replacement leaves alone: JSON documents still decode to the same shape, shell lines still parse."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.redaction.carriers import CARRIERS, carried
from benchmarks.redaction.plants import NAMES, planted_trace, plants
from benchmarks.redaction.sessions import SETS, trace_of
from composer_hub.actions.shell import Unparsable, parse_shell
from composer_hub.ingest.reading import Reading
from composer_hub.records import Message, ToolCall, Trace
from composer_hub.redact import Redactor
from composer_hub.redact.structure import replaced
from composer_hub.redact.trace import map_strings
from tests.quick import cases, quick

FIXTURES = Path(__file__).parents[1] / "fixtures/harnesses"
PLACEHOLDER = "[SECRET_x0123456789abcdef]"
STABLE = cases(400)


def document(text: str) -> Any:
    """Return the JSON document that a text is, or None."""
    if text.strip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def fits(before: Any, after: Any) -> bool:
    """Tell whether two documents differ in their values only, also in the documents that their strings hold."""
    if isinstance(after, str) and after.startswith("[") and after.endswith("]") and "_x" in after:
        return not isinstance(before, (dict, list))  # the value as a whole
    if isinstance(before, dict):
        if not isinstance(after, dict) or len(before) != len(after):
            return False
        return all(map(fits, before.values(), after.values()))
    if isinstance(before, list):
        return isinstance(after, list) and len(before) == len(after) and all(map(fits, before, after))
    if isinstance(before, str) and (inner := document(before)) is not None:
        return isinstance(after, str) and fits(inner, document(after))
    return type(before) is type(after)


def is_shell(text: str) -> bool:
    try:
        return bool(shlex.split(text))
    except ValueError:
        return False


def is_read(text: str) -> bool:
    try:
        return bool(parse_shell(text))
    except Unparsable:
        return False


def broken(before: Trace, after: Trace) -> Iterator[tuple[str, str]]:
    """Yield the texts and lines that meant something to a reader before they were redacted, and no longer do."""
    texts: tuple[list[str], list[str]] = ([], [])
    # An apostrophe in what a person or a model says is no quotation, though the sentence may parse as a command.
    prose = {message.content for message in before.messages if message.role != "tool"}
    for trace, found in zip((before, after), texts, strict=True):
        map_strings(trace, lambda text, found=found: found.append(text) or text)
    for old, new in zip(*texts, strict=True):
        lines = list(zip(old.split("\n"), new.split("\n"), strict=False)) if old.count("\n") == new.count("\n") else []
        for was, now in [(old, new), *lines] if old != new else ():
            if was == now:
                continue
            if (inner := document(was)) is not None and not fits(inner, document(now)):
                yield was, now
            if old in prose:
                continue
            if (is_shell(was) and not is_shell(now)) or (is_read(was) and not is_read(now)):
                yield was, now


def redacted(trace: Trace) -> Trace:
    return Redactor(b"salt").trace(trace)


@pytest.mark.parametrize("name", NAMES)
def test_planted_values_leave_their_documents_and_commands_whole(name: str) -> None:
    trace = planted_trace(plants(name, 31, 1), 31)
    assert list(broken(trace, redacted(trace))) == []


@pytest.mark.parametrize("carrier", quick(4, CARRIERS))
def test_values_over_several_messages_leave_their_documents_and_commands_whole(carrier: str) -> None:
    traces = [carried(plant, carrier) for plant in plants("fourth", 33, 1) if plant.kind.klass == "secret"]
    assert [found for trace in traces if trace for found in broken(trace, redacted(trace))] == []


@pytest.mark.parametrize("path", quick(4, sorted(SETS.glob("sessions*.json"))), ids=lambda path: path.stem)
def test_sessions_of_others_keep_their_documents_and_commands(path: Path) -> None:
    traces = [trace_of(session) for session in json.loads(path.read_text("utf-8"))]
    assert [found for trace in traces for found in broken(trace, redacted(trace))] == []


def test_the_fixtures_of_all_harnesses_keep_their_documents_and_commands(samples: Path) -> None:
    traces = [session.trace for folder in (FIXTURES, samples) for session in Reading([folder])]
    assert len(traces) > 20
    assert [found for trace in traces for found in broken(trace, redacted(trace))] == []


# ------------------------------------------------------------------------------------------------------ what broke once


def ran(command: str, output: str) -> tuple[str, str]:
    call = ToolCall("Bash", {"command": command}, "c1")
    messages = (Message("assistant", "", (call,)), Message("tool", output, tool_call_id="c1", name="Bash"))
    after = redacted(Trace("t", "claude_code", "s", messages, ()))
    return after.messages[0].tool_calls[0].arguments["command"], after.messages[1].content


@pytest.mark.parametrize("indent", [None, 4])
def test_a_document_of_secrets_that_a_command_prints_still_decodes(indent: int | None) -> None:
    inner = {"username": "app", "password": "Kx7!vRq2Lm9z", "apikey": "q8Zt3Vn6Wp1Xs5Yb"}
    output = json.dumps({"Name": "prod/app", "SecretString": json.dumps(inner)}, indent=indent)
    _, shown = ran("aws secretsmanager get-secret-value --secret-id prod/app", output)
    told = json.loads(json.loads(shown)["SecretString"])
    assert told.keys() == inner.keys()
    assert not any(value in shown for name, value in inner.items() if name != "username")


@pytest.mark.parametrize("joint", [" && ", "\n", "; "])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_name_that_git_is_given_keeps_both_quotation_marks(joint: str, quote: str) -> None:
    name = f"git config user.name {quote}Anna Berg{quote}"
    command, _ = ran(f"git config user.email a.b@acme.io{joint}{name}", "")
    email, told = command.split(joint)
    assert "acme" not in email
    assert "Berg" not in told
    assert len(shlex.split(told)) == 4
    assert told.count(quote) == 2


@pytest.mark.parametrize(
    ("text", "span", "expected"),
    [
        ('x {y, "key": "abc"}', '"abc"}', f'x {{y, "key": "{PLACEHOLDER}"}}'),
        ('"key": "abc"}', '"abc"}', f'"key": "{PLACEHOLDER}"}}'),
        (r'x {\"key\": \"abc\"}"', r'abc\"}"', rf'x {{\"key\": \"{PLACEHOLDER}\"}}"'),
        ("f(k='abc');", "abc');", f"f(k='{PLACEHOLDER}');"),
        ("by O'Brien and the users' names", "O'Brien", f"by {PLACEHOLDER} and the users' names"),
        ('{"phone": 4915112345678}', "4915112345678", f'{{"phone": "{PLACEHOLDER}"}}'),
        (r'{"a": "{\"pin\": 4711}"}', "4711", rf'{{"a": "{{\"pin\": \"{PLACEHOLDER}\"}}"}}'),
        ("pass: abc}", "abc}", f"pass: {PLACEHOLDER}"),
        (r'{"a": "one\nabc"}', "nabc", rf'{{"a": "one\n{PLACEHOLDER}"}}'),
    ],
)
def test_a_span_is_cut_to_what_is_inside_its_quotation(text: str, span: str, expected: str) -> None:
    at = text.index(span)
    assert replaced(text, [(at, at + len(span), None)], lambda *_: PLACEHOLDER) == expected


# ------------------------------------------------------------------------------------------------------ any span at all

_letters = st.text(st.sampled_from(list("ab1 \"'\\\n{}[]:,é\U0001f600\x07=")), max_size=12)
_leaves = st.one_of(_letters, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False))
_plain = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_letters, inner, max_size=3), max_leaves=6
)


def _dumped(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda value, ascii_only, indent: json.dumps(value, ensure_ascii=ascii_only, indent=indent),
        inner, st.booleans(), st.sampled_from([None, 2]),
    )  # fmt: skip


_documents = st.lists(st.one_of(_plain, _dumped(_plain), _dumped(st.tuples(_dumped(_plain)))), min_size=1, max_size=4)


def kept(before: Any, after: Any) -> bool:
    """Tell whether a document has the same values, except where a placeholder is."""
    if PLACEHOLDER in str(after) and isinstance(after, str):
        return not isinstance(before, (dict, list))
    if isinstance(before, dict):
        # Two keys may get the same placeholder.
        same = isinstance(after, dict) and (len(before) == len(after) or PLACEHOLDER in after)
        return same and all(kept(value, after[key]) for key, value in before.items() if key in after)
    if isinstance(before, list):
        return isinstance(after, list) and len(before) == len(after) and all(map(kept, before, after))
    return bool(before == after)


@STABLE
@given(_dumped(_documents), st.sampled_from(["", "$ aws\n"]), st.data())
def test_whatever_span_is_replaced_a_document_still_decodes(text: str, before: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    spans = [(len(before) + start, len(before) + end, None)]
    after = replaced(before + text, spans, lambda *_: PLACEHOLDER)
    assert after.startswith(before)
    assert kept(json.loads(text), json.loads(after[len(before) :]))


_words = st.text(st.sampled_from(list("ab1 ;{}$x")), min_size=1, max_size=8)
_quoted = st.builds(
    lambda head, quote, word: f"{head}{quote}{word}{quote}",
    st.sampled_from(["", "k=", "--key="]), st.sampled_from(["'", '"']), _words,
)  # fmt: skip


@STABLE
@given(st.lists(st.sampled_from(["ls", "-p", "a=b"]) | _quoted, min_size=1, max_size=6).map(" ".join), st.data())
def test_whatever_span_is_replaced_a_shell_line_keeps_its_quotation_marks(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    shlex.split(replaced(text, [(start, end, None)], lambda *_: PLACEHOLDER))


def test_many_replacements_on_one_line_are_made_in_one_pass() -> None:
    one = r'{"log": "say \"abc\" to x", "n": 12345}'
    text = f"[{', '.join([one] * 20_000)}]"
    step = len(one) + 2
    spans = [
        (1 + number * step + at, 1 + number * step + at + length, None)
        for number in range(20_000)
        for at, length in ((one.index("abc"), 4), (one.index("12345"), 5))
    ]
    rows = json.loads(replaced(text, spans, lambda *_: "[X]"))
    assert rows == [{"log": 'say "[X]" to x', "n": "[X]"}] * 20_000
