"""Sessions of made calls, and the error sites that the package finds in them."""

from __future__ import annotations

from composer_hub.errors.find import find_errors
from composer_hub.errors.vocabulary import KINDS
from composer_hub.records import ErrorSite, Message, Step, ToolCall, Trace
from composer_hub.session import ResultFlag, Session


def flag(is_error: bool | None = None, exit_code: int | None = None, status: str = "", detail: str = "") -> ResultFlag:
    return ResultFlag(is_error=is_error, exit_code=exit_code, status=status, detail=detail)


Made = tuple[str, object, "str | None", "ResultFlag | None"]


def session_of(*made: Made) -> Session:
    """A linear session: each made call is one step, (tool, arguments, result or None, flag or None)."""
    messages = [Message("user", "Do it.")]
    steps, flags = [], {}
    for index, (tool, arguments, result, told) in enumerate(made):
        action = len(messages)
        messages.append(Message("assistant", tool_calls=(ToolCall(tool, arguments, f"call-{index}"),)))
        results: tuple[int, ...] = ()
        if result is not None:
            results = (len(messages),)
            messages.append(Message("tool", result, tool_call_id=f"call-{index}", name=tool))
            if told is not None:
                flags[results[0]] = told
        steps.append(Step(f"step-{index}", index, action, ((0, action),), results))
    trace = Trace("trace", "test", "session", tuple(messages), tuple(steps))
    return Session(trace, flags)


def sites(*made: Made, text_rules: bool = False) -> list[ErrorSite]:
    trace = find_errors(session_of(*made), text_rules=text_rules)
    return [site for step in trace.steps for site in step.error_sites]


def blames(kind: str) -> tuple[str, ...]:
    """Return what a site of a kind may be blamed on: a later call may prove what the message does not."""
    return (KINDS[kind], "model") if KINDS[kind] == "unknown" else (KINDS[kind],)


def shell(command: str, result: str, told: ResultFlag | None = None) -> Made:
    return ("Bash", {"command": command}, result, told)


TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: bad\n'
FILE = {"file_path": "/repo/a.py"}
