"""Exceptions of programs that the model wrote in order to run them, and slips in the text of a call."""

# ruff: noqa: E501  # a case is one line

from __future__ import annotations

import pytest

from tests.errors.sessions import flag, shell, sites

TRACEBACK = 'Exit code 1\nTraceback (most recent call last):\n  File "{}", line 3, in <module>\n{}'
THROUGH_PROJECT = TRACEBACK.format(
    "<string>", '    run()\n  File "/repo/lib/run.py", line 9, in run\n    raise KeyError(1)\nKeyError: 1'
)
ANSWERS = {
    "a script": ("python reproduce.py", TRACEBACK.format("reproduce.py", "KeyError: 1")),
    "a heredoc that the same call runs": ("cat > case.py <<'E'\nimport lib\nE\npython case.py", TRACEBACK.format("case.py", "KeyError: 1")),
    "inline text that reaches the project": ("python -c 'import lib; lib.run()'", THROUGH_PROJECT),
    "an assertion of inline text": ("python - <<'E'\nassert f() == 2\nE", TRACEBACK.format("<stdin>", "AssertionError")),
    "a failure of a library without a name": ("node -e 'chromium.launch()'", "browserType.launch: Executable doesn't exist at /c/chrome\n    at [eval]:1:92 {\n  name: 'Error'\n}"),
    "an error that inline text throws": ("node - <<'E'\nthrow new Error('no section');\nE", "[stdin]:1\n  throw new Error('no section')\n\nError: no section\n    at [stdin]:1:9"),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_an_exception_that_a_program_was_run_to_show_is_an_outcome(name: str) -> None:
    (site,) = sites(shell(*ANSWERS[name], flag(exit_code=1)))
    assert (site.kind, site.blame, site.rule) == ("program_exception", "outcome", "exit.own_program")


SLIPS = {
    "a name": ("node - <<'E'\ntext.includes('a')\nE", "[stdin]:1\n\nReferenceError: text is not defined\n    at [stdin]:1:9"),
    "a text that is no program": ("python -c 'print(1'", TRACEBACK.format("<string>", "SyntaxError: '(' was never closed")),
}  # fmt: skip


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_in_the_text_of_a_call_is_the_models(name: str) -> None:
    (site,) = sites(shell(*SLIPS[name], flag(exit_code=1)))
    assert (site.kind, site.blame) == ("runtime_exception", "model")


UNPROVEN = {
    "a key": ("python -c 'import json; json.load(open(\"a\"))[1]'", TRACEBACK.format("<string>", "KeyError: 1")),
    "input of a library": ("echo | python -c 'import json,sys; json.load(sys.stdin)'", TRACEBACK.format("<string>", '  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode\njson.decoder.JSONDecodeError: Expecting value')),
}  # fmt: skip


@pytest.mark.parametrize("name", UNPROVEN)
def test_an_exception_about_data_proves_no_slip(name: str) -> None:
    (site,) = sites(shell(*UNPROVEN[name], flag(exit_code=1)))
    assert (site.kind, site.blame) == ("runtime_exception", "unknown")


def test_an_exception_of_a_program_of_others_is_neither() -> None:
    (site,) = sites(shell("./server", "panic: runtime error: index out of range", flag(exit_code=2)))
    assert (site.kind, site.blame) == ("nonzero_exit", "env")
