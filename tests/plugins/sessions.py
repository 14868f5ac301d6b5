"""What the tests of ingest may ask for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from composer_hub.ingest.report import FileReport
from composer_hub.ingest.sources import HEAD_BYTES, sniff
from composer_hub.records import Trace, from_row, to_row
from composer_hub.session import Session

ROOT = Path(__file__).resolve().parents[2]

Read = Callable[[Path], tuple[list[Session], FileReport]]


@pytest.fixture(scope="session")
def written() -> Path:
    """The folder of sessions written for these tests."""
    return ROOT / "tests/fixtures/ingest"


@pytest.fixture(scope="session")
def read() -> Read:
    """Read a file with the reader that its content asks for."""

    def read_file(path: Path) -> tuple[list[Session], FileReport]:
        report = FileReport(str(path))
        with path.open("rb") as file:
            source = sniff(file.read(HEAD_BYTES), path)
        assert source is not None, f"{path} is in no known format"
        return list(source.read(path, report)), report

    return read_file


@pytest.fixture(scope="session")
def logs() -> Path:
    """The folder of small logs written for the tests of the other harnesses, one format a file."""
    return ROOT / "tests/fixtures/harnesses"


@pytest.fixture(scope="session")
def read_file() -> Callable[..., tuple[list[Session], FileReport]]:
    """Read a file with a reader module and check every session that comes out."""

    def read_with(module: ModuleType, path: Path) -> tuple[list[Session], FileReport]:
        report = FileReport(str(path))
        sessions = list(module.read(path, report))
        for session in sessions:
            check_session(session)
        return sessions, report

    return read_with


@pytest.fixture(scope="session")
def sound() -> Callable[[Session], None]:
    """Hold a session against what every reader promises."""
    return check_session


def check_session(session: Session) -> None:
    """Hold a session against what every reader promises."""
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
