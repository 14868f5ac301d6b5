"""A whole trace through the redactor: what changes, what must not, and what the report counts."""

from __future__ import annotations

import dataclasses
import json
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.redaction.plants import Plant, planted_trace, plants, score, texts_of
from composer_hub.records import ErrorSite, Hint, Message, Step, ToolCall, Trace
from composer_hub.redact import (
    Publisher,
    RedactionError,
    RedactionReport,
    Redactor,
    drop_denied,
    read_denylist,
    rules_digest,
)
from tests.quick import cases

SALT = b"salt of these tests"
STABLE = cases(60)
TOKEN = "ghp_" + "aZ3kQ9xW7mP2rT5vB8nC" + "1dF4gH6jL0sY"


def a_trace(*contents: str, **fields: Any) -> Trace:
    return Trace("t1", "claude_code", "s1", tuple(Message("user", content) for content in contents), (), **fields)


def contents(trace: Trace) -> list[str]:
    return [message.content for message in trace.messages]


def planted(seed: int, num_each: int = 2) -> tuple[list[Plant], Trace]:
    drawn = plants("first", seed, num_each)
    return drawn, planted_trace(drawn, seed)


# ----------------------------------------------------------------------------------------------------------- structure


def shape(value: Any) -> Any:
    """Return a value with its texts taken out: keys, types, lengths, numbers."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shape(item) for item in value]
    return value


@pytest.mark.parametrize("seed", [101, 102])
def test_ids_types_keys_and_names_are_untouched(seed: int) -> None:
    _, trace = planted(seed)
    redacted = Redactor(SALT).trace(trace)
    assert [dataclasses.replace(step, error_sites=(), hints=()) for step in redacted.steps] == list(trace.steps)
    for before, after in zip(trace.messages, redacted.messages, strict=True):
        assert (before.role, before.name, before.tool_call_id) == (after.role, after.name, after.tool_call_id)
        assert [(c.name, c.call_id, shape(c.arguments)) for c in before.tool_calls] == [
            (c.name, c.call_id, shape(c.arguments)) for c in after.tool_calls
        ]
    assert (redacted.trace_id, redacted.session_id, redacted.model) == (trace.trace_id, trace.session_id, trace.model)


@pytest.mark.parametrize("seed", [103, 104])
def test_json_inside_strings_stays_json_of_the_same_shape(seed: int) -> None:
    _, trace = planted(seed)
    redacted = Redactor(SALT).trace(trace)
    checked = 0
    for before, after in zip(contents(trace), contents(redacted), strict=True):
        if before.startswith("{"):
            assert shape(json.loads(before)) == shape(json.loads(after))
            checked += 1
    assert checked > 50


def test_formatting_numbers_and_double_keys_of_json_text_stay() -> None:
    text = '{"n": 1.0e5 ,\n  "big": 123456789012345678901234567890, "k": "a@acme.io", "k": "\\u00e9\\/"}'
    (redacted,) = contents(Redactor(SALT).trace(a_trace(text)))
    assert redacted.partition('"k": "')[0] == text.partition('"k": "')[0]
    assert redacted.endswith('"k": "\\u00e9\\/"}')
    assert "acme" not in redacted


def test_json_in_json_in_a_line_of_json_is_reached() -> None:
    inner = json.dumps({"log": json.dumps({"password": "Hunter2!x", "by": "jane@acme.io"})})
    (redacted,) = contents(Redactor(SALT).trace(a_trace("$ cat log.jsonl\n" + inner + "\nend")))
    document = json.loads(json.loads(redacted.split("\n")[1])["log"])
    assert set(document) == {"password", "by"}
    assert "Hunter2" not in redacted
    assert "acme" not in redacted


def test_every_place_that_holds_text_is_redacted() -> None:
    secret = f"x {TOKEN} y"
    trace = Trace(
        "t1", "codex", "s1",
        (
            Message("user", secret, reasoning_content=secret),
            Message(
                "assistant", "",
                (ToolCall("Bash", {"a": [secret, 7], "b": {"c": secret}}, "call_1"), ToolCall("Raw", secret, "call_2")),
            ),
        ),
        (
            Step(
                "st", 0, 1, ((0, 1),), error_sites=(ErrorSite("k", "model", "flag", 1.0, "r", message=secret),),
                hints=(Hint(secret, "w", "r", 1),),
            ),
        ),
        tools=(
            {
                "type": "function",
                "function": {"name": "Bash", "description": secret, "parameters": {"password": {"type": "string"}}},
            },
        ), cwd=f"/srv/{TOKEN}", repository=f"https://{TOKEN}@github.com/a/b",
        provenance={"path": secret, "digest": "0f" * 32},
    )  # fmt: skip
    redacted = Redactor(SALT).trace(trace)
    assert TOKEN not in str(redacted)
    assert redacted.tools[0]["function"]["parameters"] == {"password": {"type": "string"}}
    assert redacted.provenance["digest"] == "0f" * 32
    assert redacted.redaction == rules_digest()


def test_a_key_that_is_a_path_is_text_and_a_key_that_is_a_name_stays() -> None:
    call = ToolCall("Edit", {"files": {"/home/janedoe/app.py": "x"}, "password_of_janedoe": 1}, "c")
    trace = Trace("t", "x", "s", (Message("assistant", "", (call,)),), ())
    arguments = Redactor(SALT).trace(trace).messages[0].tool_calls[0].arguments
    assert "janedoe" not in str(arguments["files"])
    assert arguments["password_of_janedoe"] == 1


# --------------------------------------------------------------------------------------------------------- consistency


@STABLE
@given(st.lists(
    st.sampled_from([
        "password=", "ghp_", TOKEN, "a@acme.io", "/home/janedoe", "janedoe", "\\n", '"', "{", "}", ": ", "\n", "://",
        "@", "+14155552671", "Author: Jane Doe <", "sk-", "=", "4539148803436467", "\x1b[31m", "[SECRET_1]", "x", "7",
        "İ",
    ]), max_size=12,
))  # fmt: skip
def test_redacting_twice_is_redacting_once(parts: list[str]) -> None:
    once = Redactor(SALT).trace(a_trace("".join(parts), "janedoe"))
    assert contents(Redactor(SALT).trace(once)) == contents(once)


@STABLE
@given(st.text(max_size=200))
def test_any_text_at_all_is_redacted_without_an_error_and_once(text: str) -> None:
    once = Redactor(SALT).text(text)
    assert Redactor(SALT).text(once) == once


@pytest.mark.parametrize("seed", [105, 106])
def test_a_planted_trace_redacted_twice_is_redacted_once(seed: int) -> None:
    once = Redactor(SALT).trace(planted(seed)[1])
    assert Redactor(SALT).trace(once) == once


def test_a_value_has_one_placeholder_in_every_file_and_spelling() -> None:
    first, second = (
        contents(Redactor(SALT).trace(a_trace(text)))[0] for text in ("to Jane@Acme.io", "from jane@acme.io.")
    )
    assert first.split()[-1] == second.split()[-1].rstrip(".")


def test_another_salt_gives_other_placeholders() -> None:
    assert Redactor(b"a").text("jane@acme.io") != Redactor(b"b").text("jane@acme.io")


def test_worker_processes_agree_without_talking() -> None:
    traces = [planted(seed, 1)[1] for seed in (107, 108)]
    redactor = Redactor(SALT)
    with ProcessPoolExecutor(2) as pool:
        assert list(pool.map(redactor.trace, traces)) == [Redactor(SALT).trace(trace) for trace in traces]


def test_the_home_user_goes_everywhere() -> None:
    trace = a_trace(
        "janedoe pushed", "~/.claude/projects/-Users-janedoe-code/x", "JaneDoe\\njanedoe", "C:\\Users\\janedoe\\x",
        "janedoes", cwd="/Users/janedoe/code",
    )  # fmt: skip
    redacted = Redactor(SALT).trace(trace)
    assert "janedoe" not in (redacted.cwd + " ".join(contents(redacted)[:4])).lower()
    assert contents(redacted)[4] == "janedoes"
    assert (
        len({text.partition("[USER_")[2][:17] for text in (redacted.cwd, contents(redacted)[0], contents(redacted)[1])})
        == 1
    )


def test_a_user_name_with_a_dot_is_found_in_the_folder_name_harnesses_make_of_it() -> None:
    redacted = Redactor(SALT).trace(a_trace("-Users-jane-doe-code", cwd="/Users/jane.doe/code"))
    assert contents(redacted)[0].startswith("-Users-[USER_x")


def test_a_user_name_of_two_words_goes_whole() -> None:
    talk = [
        "see C:\\Users\\Grete Kaiserling\\x.py",
        "/Users/Grete Kaiserling/b",
        "Grete ran it",
        "ls /Users/Grete Desktop",
    ]
    redacted = Redactor(SALT).trace(a_trace(*talk, cwd="C:\\Users\\Grete Kaiserling\\code"))
    texts = [redacted.cwd, *contents(redacted)]
    assert not [text for text in texts if "Grete" in text or "Kaiserling" in text]
    assert texts[-1].endswith("] Desktop")


def test_a_user_name_that_is_a_word_is_replaced_in_paths_only() -> None:
    redacted = Redactor(SALT).trace(a_trace("mark the line in /home/mark/x", cwd="/home/mark"))
    assert contents(redacted)[0].startswith("mark the line in /home/[USER_x")


def test_a_secret_named_once_is_found_where_nothing_names_it() -> None:
    redacted = contents(Redactor(SALT).trace(a_trace("DB_PASSWORD=k7#Tq-w2Zx_p", "logged in with k7#Tq-w2Zx_p")))
    assert "k7#Tq" not in "".join(redacted)


def test_the_publishers_own_values_go_whatever_they_look_like() -> None:
    publisher = Publisher(("quietuser",), ("Quiet Person",), ("q@home.quiet",), ("quietbook.local",))
    redactor = Redactor(SALT, exact=["correct horse/battery"], publisher=publisher)
    trace = a_trace(
        "say correct horse/battery", "q=correct%20horse%2Fbattery", "by quietuser, QUIET PERSON", "q@home.quiet",
        "quietuser@quietbook:~$ hostname\nquietbook.local",
    )  # fmt: skip
    redacted = " ".join(contents(redactor.trace(trace))).lower()
    assert "horse" not in redacted
    assert "quiet" not in redacted.replace("@quietbook:", "")


# -------------------------------------------------------------------------------------------------------------- report


def test_no_value_is_in_the_report_the_redactors_text_or_its_pickle_counts() -> None:
    drawn, trace = planted(109)
    redactor = Redactor(SALT, exact=[TOKEN])
    redactor.trace(trace)
    shown = json.dumps(redactor.report.to_dict()) + repr(redactor) + repr(redactor.report)
    assert not [
        plant.value for plant in drawn if plant.kind.klass != "keep" and len(plant.value) >= 8 and plant.value in shown
    ]
    assert TOKEN not in shown
    assert pickle.loads(pickle.dumps(redactor)).report == RedactionReport()


def test_reports_of_workers_add_up() -> None:
    one, two, both = Redactor(SALT), Redactor(SALT), Redactor(SALT)
    first, second = planted(110, 1)[1], planted(111, 1)[1]
    one.trace(first)
    two.trace(second)
    both.trace(first)
    both.trace(second)
    assert one.report + two.report == both.report
    assert both.report.to_dict()["num_traces"] == 2
    assert both.report.to_dict()["kinds"]["secret"] > 50


@pytest.mark.parametrize("seed", [112, 113, 114])
def test_recall_on_planted_values_holds_the_goals(seed: int) -> None:
    drawn = plants("first", seed, half="known")
    result = score(drawn, texts_of(Redactor(SALT).trace(planted_trace(drawn, seed))))
    assert result.rate("secret") >= 0.97
    assert result.rate("pii") >= 0.95
    assert result.rate("keep") >= 0.98


# ------------------------------------------------------------------------------------------------------------- removal


def test_a_denied_trace_and_the_subagents_it_started_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "denied.txt"
    path.write_text("# asked for on 2026-11-20\nt1   # the mail\n\n")
    child = dataclasses.replace(a_trace(), trace_id="t2", parent_trace_id="t1")
    kept = dataclasses.replace(a_trace(), trace_id="t3")
    assert list(drop_denied([a_trace(), child, kept], read_denylist(path))) == [kept]


def test_a_denylist_of_something_else_says_which_line_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "denied.txt"
    path.write_text("please remove t1\n")
    with pytest.raises(RedactionError, match=r"denied.txt: 'please remove t1' is not a trace id"):
        read_denylist(path)


# -------------------------------------------------------------------------------------------------------- hostile input

UNITS = [
    "ghp_", "sk-", "password=", "token: ", "key ", "://a:b", "a@b.", "<a@b ", "1.", "1-", "a:", "::", "eyJ", "AKIA",
    "_aB3", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "\\", '"', "{", "[", "\x1b[", "/home/al/",
    "Author: A ", "DE89 ", "a" * 60 + "\n", "curl -u ", "İ",
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_a_long_text_of_one_trigger_ends_and_stays_stable(unit: str) -> None:
    # Quadratic work would take minutes here and run into the suite's own time limit.
    text = (unit * (30_000 // len(unit)))[:30_000]
    assert Redactor(SALT).text(text)


def test_ten_megabytes_in_one_string_keep_their_length_but_for_the_secret() -> None:
    filler = "the quick brown fox jumps over the lazy dog\n" * 230_000
    redacted = Redactor(SALT).text(filler + TOKEN)
    assert redacted.startswith(filler)
    assert redacted.endswith("]")


def test_lone_surrogates_and_deep_json_pass() -> None:
    deep = "[" * 3000 + '"a@acme.io"' + "]" * 3000
    redacted = contents(Redactor(SALT).trace(a_trace("\ud800 a@acme.io", '{"x": "\\ud800 a@acme.io"}', deep)))
    assert "acme" not in "".join(redacted)


# --------------------------------------------------------------------------------------------------------- real samples


def test_real_sessions_lose_their_users_and_keep_their_commits(samples: Path) -> None:
    lines = [
        json.loads(line) for line in (samples / "claude_code/cc-2.1.128.jsonl").read_text().splitlines() if line.strip()
    ]
    texts = list(strings(lines))
    redactor = Redactor(SALT, judge=None)  # the signatures of thinking, which no trace has, look like secrets
    redacted = contents(redactor.trace(a_trace(*texts)))
    assert any("goose-guest" in text for text in texts)
    assert not any("goose-guest" in text for text in redacted)
    assert "ea344aefb233cf74719b871ae103062" in "".join(redacted)
    assert redactor.report.to_dict()["kinds"].get("secret", 0) == 0


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in strings(item)]
