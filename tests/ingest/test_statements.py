"""What each harness's record states is what its fixtures show: nothing more, nothing less."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping

import pytest

from composer_hub.actions.tools import family_of_tool
from composer_hub.harnesses import (
    FACTS,
    HARNESSES,
    IN_EVERY_FILE,
    TESTED_ON,
    TO_DECIDE,
    Harness,
    body_of,
    facts_of,
    harness_named,
)
from composer_hub.ingest.report import STREAM_LOG, FileReport
from composer_hub.ingest.sources import source_named
from composer_hub.records import Message, Step, Trace, strings_in
from composer_hub.session import Session
from tests.ingest.test_harnesses import SAMPLES
from tests.plugins.sessions import LOG_FILES, LOGS

Sessions = list[Session]

# Tools in fixtures whose calls need no family, with the reason. Any other belongs into composer_hub/actions/tools.py.
WITHOUT_FAMILY = {
    "grepp": "a tool that does not exist, called by mistake",
    "no_such_tool": "a tool that does not exist, called by mistake",
    "plus": "the tool of a training run in the fixture",
    "run_commands": "Cline's list of commands",
}


def steps_of(sessions: Sessions) -> list[Step]:
    return [step for session in sessions for step in session.trace.steps]


def messages_of(sessions: Sessions) -> list[Message]:
    return [message for session in sessions for message in session.trace.messages]


def has_flag(name: str, *values: object) -> Callable[[Sessions], bool]:
    """Look for a flag whose field has one of the values, or any."""

    def check(sessions: Sessions) -> bool:
        seen = [getattr(flag, name) for session in sessions for flag in session.flags.values()]
        return any(value in values if values else bool(value) for value in seen)

    return check


def has_fact(name: str) -> Callable[[Sessions], bool]:
    return lambda sessions: any(getattr(session.trace, name) not in ("", None) for session in sessions)


def has_provenance(*names: str) -> Callable[[Sessions], bool]:
    return lambda sessions: any(session.trace.provenance.get(name) for session in sessions for name in names)


def shows_user(sessions: Sessions) -> bool:
    mains = [session.trace for session in sessions if not session.trace.parent_trace_id] or [
        session.trace for session in sessions
    ]
    return any(message.role == "user" and not message.tool_call_id for message in mains[0].messages[:3])


def has_compaction(sessions: Sessions) -> bool:
    """Look for a step on the main branch that no longer reads an earlier one."""
    for session in sessions:
        steps = [step for step in session.trace.steps if step.on_main_branch]
        for place, step in enumerate(steps):
            read = {index for start, stop in step.prompt for index in range(start, stop)}
            if any(earlier.action not in read for earlier in steps[:place]):
                return True
    return False


CHECKS: Mapping[str, Callable[[Sessions], bool]] = {
    "the system prompt": lambda sessions: any(
        one.trace.system_prompt_source == "recorded" and any(message.role == "system" for message in one.trace.messages)
        for one in sessions
    ),
    "tool schemas": lambda sessions: any(one.trace.tools and one.trace.tools_source == "recorded" for one in sessions),
    "exact prompts": lambda sessions: any(step.prefix_exact for step in steps_of(sessions)),
    "the user's words": shows_user,
    "the folder": has_fact("cwd"),
    "the model": lambda sessions: all(step.model for step in steps_of(sessions)),
    "token counts": lambda sessions: any(usage.context and usage.output for one in sessions for usage in one.usages),
    "times": lambda sessions: any(usage.at for one in sessions for usage in one.usages),
    "tool calls": lambda sessions: any(message.tool_calls for message in messages_of(sessions)),
    "parallel calls": lambda sessions: any(len(message.tool_calls) > 1 for message in messages_of(sessions)),
    "results": lambda sessions: any(step.results for step in steps_of(sessions)),
    "compactions": has_compaction,
    "branches": lambda sessions: any(not step.on_main_branch for step in steps_of(sessions)),
    "error flags": has_flag("is_error"),
    "exit codes": has_flag("exit_code"),
    "thinking": lambda sessions: any(step.reasoning_status == "plain" for step in steps_of(sessions)),
    "subagents": has_fact("parent_trace_id"),
    "typed errors": has_flag("detail"),
    "denials": has_flag("status", "denied"),
    "cancellations": has_flag("status", "cancelled", "interrupted"),
    "timeouts": has_flag("status", "timeout"),
    "hidden thinking": lambda sessions: any(step.reasoning_status == "encrypted" for step in steps_of(sessions)),
    "summaries of thinking": lambda sessions: any(step.reasoning_status == "summary" for step in steps_of(sessions)),
    "unparsed arguments": lambda sessions: any(
        isinstance(call.arguments, str) for message in messages_of(sessions) for call in message.tool_calls
    ),
    "the verdict": has_fact("resolved"),
    "the repository": has_fact("repository"),
    "the license": has_fact("license"),
    "the version": has_provenance("harness_version"),
    "the start": has_provenance("started_at", "started"),
    "error sites": lambda sessions: any(step.error_sites for step in steps_of(sessions)),
    "hints": lambda sessions: any(step.hints for step in steps_of(sessions)),
    "token ids": has_provenance("completion_ids"),
}

FIELDS = {  # that hold a fact in most formats
    "the system prompt": r'"role":\s*"system"|system_?prompt',
    "tool schemas": r'"parameters":\s*\{"type"',
    "the folder": r'"(?:cwd|working_?dir(?:ectory)?|directory|workDir)":',
    "the model": r'"model(?:_?id|_?name)?":\s*"[^"]',
    "times": r'"(?:timestamp|ts|created(?:_?at)?)":',
    "token counts": r'"\w*tokens?(?:_?count)?":\s*[1-9]',
    "error flags": r'"is_?error":',
    "exit codes": r'"(?:exit_?code|returncode)":',
    "thinking": r'"(?:thinking|reasoning(?:_content)?)":\s*"[^"]',
    "subagents": r'"(?:parent_?session_?id|isSidechain)":',
}


@functools.cache
def sessions_of(name: str) -> Sessions:
    return list(source_named(LOG_FILES[name]).read(LOGS / name, FileReport()))


def files_of(harness: Harness) -> list[str]:
    return [name for name, owner in LOG_FILES.items() if owner == harness.name]


def is_stream(name: str) -> bool:
    return all(STREAM_LOG in step.prefix_reason for step in steps_of(sessions_of(name)))


def shown_by(name: str) -> set[str]:
    return {fact for fact, check in CHECKS.items() if check(sessions_of(name))}


BY_NAME = pytest.mark.parametrize("harness", HARNESSES, ids=lambda one: one.name)


def test_every_fact_that_a_harness_may_state_has_a_check():
    assert set(CHECKS) == set(FACTS)


@BY_NAME
def test_a_harness_decides_on_each_fact(harness):
    gives, lacks = facts_of(harness.gives), facts_of(harness.lacks)
    assert not {*gives, *lacks} - set(FACTS), "Only words of FACTS in composer_hub/harnesses.py have a check."
    open_ones = sorted(set(TO_DECIDE) - gives.keys() - lacks.keys())
    assert not open_ones, f"Add to `gives` or `lacks` of {harness.name}: {', '.join(open_ones)}."
    assert lacks.keys() <= TO_DECIDE.keys() - gives.keys(), (
        "`lacks` has only facts of TO_DECIDE that are not in `gives`."
    )


@BY_NAME
def test_the_fixtures_of_a_harness_show_what_it_gives(harness):
    shown = set().union(*map(shown_by, files_of(harness)))
    missing = [fact for fact in facts_of(harness.gives) if fact not in shown]
    assert not missing, (
        f"No file in tests/fixtures/harnesses/{harness.name}/ shows {', '.join(missing)}. If the reader misses "
        "it, read it; if no fixture has it, add it to one; if the format has none, move it to `lacks`. CHECKS in this "
        "file has the exact meaning."
    )


@BY_NAME
def test_the_fixtures_of_a_harness_show_nothing_else(harness):
    shown = set().union(*map(shown_by, files_of(harness)))
    more = sorted(shown - facts_of(harness.gives).keys())
    assert not more, f"Add to `gives` of {harness.name} in composer_hub/harnesses.py: {', '.join(more)}."


@pytest.mark.parametrize("name", LOG_FILES)
def test_a_limit_of_a_fact_is_as_wide_as_the_fixtures_show(name):
    gives = facts_of(harness_named(LOG_FILES[name]).gives)
    shown = shown_by(name)
    missing = [fact for fact in IN_EVERY_FILE if gives.get(fact) == "" and fact not in shown]
    assert not missing, (
        f"{name} does not show {', '.join(missing)}. If the file has it, the reader misses it; else write the limit "
        "behind the fact, as in `the model (not in streams)`."
    )
    kept_out = "not in streams" if is_stream(name) else "in streams"
    wrong = [fact for fact in shown & gives.keys() if re.split("[;,]", gives[fact])[0] == kept_out]
    assert not wrong, f"{name} shows {', '.join(wrong)}: the limit ({kept_out}) is wrong."


@pytest.mark.parametrize("name", LOG_FILES)
def test_a_fixture_has_no_field_of_a_fact_that_its_harness_lacks(name):
    text = (LOGS / name).read_bytes().decode("utf-8", "replace")
    lacks = facts_of(harness_named(LOG_FILES[name]).lacks)
    fields = {
        fact: match[0] for fact in lacks.keys() & FIELDS.keys() if (match := re.search(f"(?i){FIELDS[fact]}", text))
    }
    unread = [f"{field} ({fact})" for fact, field in fields.items() if not lacks[fact]]
    assert not unread, (
        f"{name} has {', '.join(unread)}. Read the field, and move the fact to `gives`; or say in `lacks` why it "
        "is not the fact, as in `times (not read)`."
    )


@BY_NAME
def test_a_flag_is_set_only_from_what_the_file_records(harness):
    flags = [flag for name in files_of(harness) for one in sessions_of(name) for flag in one.flags.values()]
    is_marked = any(flag.is_error is not None for flag in flags)
    assert not is_marked or "error flags" in facts_of(harness.gives), (
        "`ResultFlag.is_error` is None if the file is silent, True or False only if it says so."
    )


SHELL = ("shell", "poll")
_CD = re.compile(r"cd (?P<folder>[\w./-]+)\s*$")


def lasting_of(trace: Trace) -> Iterator[bool]:
    """Yield, for each `pwd` that follows a call which only runs `cd FOLDER`, whether it printed that folder."""
    folder = ""
    for step in trace.steps:
        results = {trace.messages[index].tool_call_id: trace.messages[index].content for index in step.results}
        for call in trace.messages[step.action].tool_calls:
            if family_of_tool(call.name, call.arguments) not in SHELL:
                continue
            command = next(strings_in(call.arguments), "")
            if moved := _CD.match(command):
                folder = moved["folder"]
            elif command == "pwd" and folder:
                printed = [line.removeprefix("Output: ") for line in body_of(results[call.call_id]).splitlines()]
                yield any(line.startswith("/") and line.endswith(f"/{folder}") for line in printed)


@BY_NAME
def test_whether_a_cd_lasts_is_seen_in_a_fixture(harness):
    sessions = [one for name in files_of(harness) for one in sessions_of(name)]
    seen = {lasts for session in sessions for lasts in lasting_of(session.trace)}
    expected = set() if harness.shell.keeps_cwd is None else {harness.shell.keeps_cwd}
    assert seen == expected, (
        f"`keeps_cwd` of {harness.name} is {harness.shell.keeps_cwd}, and its fixtures show {seen or 'nothing'}. Add a "
        "session that runs `cd src` in one call and `pwd` in the next, as the harness writes it; if you do not know "
        "what `pwd` prints, write None."
    )


def test_every_tool_that_a_fixture_calls_has_a_family():
    calls = [call for name in LOG_FILES for message in messages_of(sessions_of(name)) for call in message.tool_calls]
    unknown = {call.name for call in calls if family_of_tool(call.name, call.arguments) == "other"}
    new, gone = sorted(unknown - WITHOUT_FAMILY.keys()), sorted(WITHOUT_FAMILY.keys() - unknown)
    assert not new, (
        f"Give {', '.join(new)} a family in composer_hub/actions/tools.py, or list it in WITHOUT_FAMILY here."
    )
    assert not gone, f"Take {', '.join(gone)} out of WITHOUT_FAMILY."


@BY_NAME
def test_a_reader_that_was_tested_on_sessions_has_a_sample(harness):
    tested_on = facts_of(harness.tested_on).keys()
    assert tested_on <= TESTED_ON.keys()
    has_sample = harness.name in set(SAMPLES.values())
    assert (tested_on != {"the source"}) == has_sample, (
        "`tested_on` is `the source` exactly if SAMPLES in tests/ingest/test_harnesses.py has no file of the format."
    )
