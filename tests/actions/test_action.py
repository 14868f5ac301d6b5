"""Actions: each call with its result, polls with the command they ask about, and every call of a script."""

from __future__ import annotations

import json

from composer_hub.actions.action import Action, action_at, actions_of
from composer_hub.records import ErrorSite
from composer_hub.session import ResultFlag
from tests.errors.sessions import Made, session_of

DONE = "Script completed\nWall time 0.5 seconds\nOutput:\n\n"
RUNS = "Script running with cell ID 7\nWall time 10.0 seconds\nOutput:\n"
FAILED = "Script failed\nWall time 0.1 seconds\nOutput:\n\nScript error:\n"


def script(text: str, result: str | None) -> Made:
    return ("exec", {"input": text}, result, None)


def run(*commands: str, then: str = "") -> str:
    calls = ",".join(f"tools.exec_command({{cmd:{json.dumps(one)},workdir:'/w'}})" for one in commands)
    return f"const rs = await Promise.all([{calls}]); " + (then or "for (const r of rs) text(JSON.stringify(r));")


def actions(*made: Made) -> list[Action]:
    session = session_of(*made)
    return [one for step in actions_of(session.trace, session.flags) for one in step]


def shown(**fields: object) -> str:
    return json.dumps(fields)


def test_a_script_of_two_commands_is_two_actions_with_their_own_outcomes():
    first, second = actions(
        script(
            run("make lint", "make test"),
            DONE + shown(exit_code=0, output="fine") + "\n" + shown(exit_code=2, output="no"),
        )
    )
    assert (first.command, first.cwd, first.content, first.flag) == ("make lint", "/w", "fine", ResultFlag(exit_code=0))
    assert (second.command, second.content, second.flag) == ("make test", "no", ResultFlag(exit_code=2))
    assert (first.call.call_id, second.call.call_id) == ("call-0", "call-0")


def test_commands_whose_outputs_cannot_be_told_apart_are_read_as_one():
    text = run("make lint", "make test", then="for (const r of rs) text(r.output);")
    (one,) = actions(script(text, f"{DONE}fine\n1 failed"))
    assert (one.command, one.cwd, one.content) == ("make lint\nmake test", "/w", "fine\n1 failed")
    assert one.flag.exit_code is None


def test_a_patch_beside_a_command_is_an_action_of_its_own():
    patch = "*** Begin Patch\\n*** Update File: a.py\\n*** Add File: b.py\\n*** End Patch"
    text = f"await tools.apply_patch('{patch}'); const r = await tools.exec_command({{cmd: 'ls'}}); text(r.output);"
    first, second = actions(script(text, f"{DONE}a.py"))
    assert (first.family, first.paths, first.content) == ("edit", ("a.py", "b.py"), "")
    assert (second.family, second.content) == ("shell", "a.py")


def test_a_poll_of_a_script_asks_about_the_command_that_continues():
    started, poll, last = actions(
        script(run("make test"), DONE + shown(session_id=9, output="")),
        script("text(await tools.write_stdin({session_id: 9, chars: ''}));", DONE + shown(session_id=9, output="..")),
        script("text(await tools.write_stdin({session_id: 9, chars: ''}));", DONE + shown(exit_code=1, output="F")),
    )
    assert (started.is_running, poll.is_running, last.is_running) == (True, True, False)
    assert (poll.family, poll.polled, last.polled, last.flag.exit_code) == ("poll", "make test", "make test", 1)


def test_a_wait_shows_the_outcome_of_the_script_that_continued():
    started, wait, last = actions(
        script(run("make test"), RUNS),
        ("wait", {"cell_id": "7"}, RUNS, None),
        ("wait", {"cell_id": "7"}, DONE + shown(exit_code=1, output="1 failed"), None),
    )
    assert (started.is_running, wait.is_running, last.is_running) == (True, True, False)
    assert (last.call.name, last.polled, last.content, last.flag.exit_code) == ("wait", "make test", "1 failed", 1)


def test_a_wait_for_a_script_that_nobody_saw_is_a_plain_call():
    (wait,) = actions(("wait", {"cell_id": "3"}, f"{DONE}hello", None))
    assert (wait.family, wait.polled, wait.content) == ("poll", "", "hello")


def test_the_words_of_a_tool_that_refused_a_call_belong_to_the_call():
    text = "text(await tools.exec_command({cmd: 'ls'})); await tools.apply_patch('*** Begin Patch');"
    (one,) = actions(script(text, f"{FAILED}apply_patch verification failed: invalid hunk at line 2"))
    assert (one.call.name, one.flag.is_error) == ("apply_patch", True)
    assert one.content == "apply_patch verification failed: invalid hunk at line 2"


def test_a_script_that_broke_by_itself_is_one_action_without_a_command():
    (one,) = actions(script(run("ls"), f"{FAILED}TypeError: tools.lst is not a function"))
    assert (one.call.name, one.family, one.command, one.flag.is_error) == ("exec", "script", "", True)
    assert one.content == "Script error:\nTypeError: tools.lst is not a function"


def test_of_a_script_that_is_not_plain_only_the_text_is_known():
    (one,) = actions(script("for (const n of names) await tools.exec_command({cmd: n});", f"{DONE}1 failed"))
    assert (one.family, one.command, one.path, one.content) == ("script", "", "", "1 failed")


def test_a_script_without_a_result_is_missing():
    (one,) = actions(script(run("ls", "pwd"), None))
    assert one.is_missing


def test_a_site_of_a_script_leads_to_the_call_with_its_words():
    made = script(run("a", "b"), f"{DONE}{shown(exit_code=1, output='no a')}\n{shown(exit_code=1, output='no b')}")
    step = actions(made)
    site = ErrorSite("nonzero_exit", "env", "exit", 0.9, "", "exec_command", "call-0", "no b")
    assert action_at(site, step) is step[1]
    assert action_at(site, []) is None
