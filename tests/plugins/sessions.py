"""Fixtures for the tests of ingest: small logs of every harness, and readers that check their result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from composer_hub.harnesses import HARNESSES
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.sources import HEAD_BYTES, sniff, source_named
from composer_hub.records import Trace, from_row, to_row
from composer_hub.session import Session

LOGS = Path(__file__).resolve().parents[1] / "fixtures/harnesses"

Read = Callable[[Path], tuple[list[Session], FileReport]]


def _files_of(harness: str) -> list[Path]:
    files = sorted(path for path in (LOGS / harness).rglob("*") if path.is_file())
    return [path for path in files if not path.name.endswith(".meta.json")]


LOG_FILES = {f"{path.relative_to(LOGS)}": harness.name for harness in HARNESSES for path in _files_of(harness.name)}
"""Every fixture and the harness that wrote it, by the name of its folder."""


@pytest.fixture(scope="session")
def logs() -> Path:
    """The folder of small logs, one folder per harness."""
    return LOGS


@pytest.fixture(scope="session")
def read() -> Read:
    """Read a file with the reader that recognizes it."""

    def read_file(path: Path) -> tuple[list[Session], FileReport]:
        report = FileReport(str(path))
        with path.open("rb") as file:
            source = sniff(file.read(HEAD_BYTES), path)
        assert source is not None, f"{path} is not in a known format"
        return list(source.read(path, report)), report

    return read_file


@pytest.fixture(scope="session")
def read_file() -> Callable[..., tuple[list[Session], FileReport]]:
    """Read a file with a reader module and check every session."""

    def read_with(module: ModuleType, path: Path) -> tuple[list[Session], FileReport]:
        report = FileReport(str(path))
        sessions = list(source_named(module.NAME).read(path, report))
        for session in sessions:
            check_session(session)
        return sessions, report

    return read_with


@pytest.fixture(scope="session")
def sound() -> Callable[[Session], None]:
    """Check a session against the promises of every reader."""
    return check_session


def check_session(session: Session) -> None:
    """Check a session against the promises of every reader."""
    trace = session.trace
    assert trace.steps
    assert [step.index for step in trace.steps] == list(range(len(trace.steps)))
    assert len({step.step_id for step in trace.steps}) == len(trace.steps)
    assert len(session.keys) == len(trace.steps)
    assert all(0 <= index < len(trace.messages) for index in session.flags)
    for step in trace.steps:
        action = trace.messages[step.action]
        assert action.role == "assistant"
        assert all(0 <= start < stop <= step.action for start, stop in step.prompt), "a prompt ends before its action"
        assert bool(step.prefix_reason) != step.prefix_exact
        assert step.reasoning_status in ("plain", "summary", "encrypted", "absent")
        assert (step.reasoning_status == "plain") == bool(action.reasoning_content)
        check_results(trace, step.action, step.results)
    called = {call.call_id for message in trace.messages for call in message.tool_calls}
    assert all(message.tool_call_id in called for message in trace.messages if message.role == "tool")
    assert all(name for message in trace.messages for name in [call.name for call in message.tool_calls])
    assert from_row(Trace, to_row(trace)) == trace
    for message in trace.messages:
        message.content.encode()


def check_results(trace: Trace, action: int, results: tuple[int, ...]) -> None:
    """No result without its call: a tool message names one, an observation of a text protocol follows the text."""
    ids = {call.call_id for call in trace.messages[action].tool_calls}
    for index in results:
        assert index > action
        message = trace.messages[index]
        assert message.role == "user" or message.tool_call_id in ids
