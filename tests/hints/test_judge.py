"""The judge: what it asks, what it keeps, and what it does when its endpoint, its cache or its budget fails."""

# ruff: noqa: E501  # a case is one line

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits
from composer_hub.actions.action import Action
from composer_hub.errors.context import LaterCall, SiteContext
from composer_hub.hints.judge import MAX_CHARS, Answer, Judge, UnredactedTrace, prompt_of, two_sentences
from composer_hub.hints.writers import write_hint, write_hints
from composer_hub.records import ErrorSite, Message, Step, ToolCall, Trace


def said(hint: str, span: str = "It is too long.") -> str:
    """What a model answers: a hint, and the words that prove it."""
    return json.dumps({"hint": hint, "span": span})


def context(message: str = "It is too long.", trace: Trace | None = None) -> SiteContext:
    site = ErrorSite("style_wordy", "model", "text", 0.9, "mine", "Bash", "call-0", message)
    return SiteContext(site, ToolCall("Bash", {"command": "ls"}, "call-0"), trace=trace)


def asked(answers: list[str]) -> tuple[list[str], Callable[[str], str]]:
    prompts: list[str] = []

    def complete(prompt: str) -> str:
        prompts.append(prompt)
        return answers[min(len(prompts), len(answers)) - 1]

    return prompts, complete


class Endpoint(ThreadingHTTPServer):
    """An OpenAI-compatible chat endpoint on loopback that keeps what it was sent."""

    daemon_threads = True

    def __init__(self, reply: str, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply, self.status = reply, status
        self.seen: list[tuple[str, str, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, self.headers.get("Authorization", ""), body))
        answer = {
            "id": "1", "object": "chat.completion", "created": 1, "model": body.get("model"),
            "choices": [{"index": 0, "message": {"role": "assistant", "content": self.server.reply}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 90, "completion_tokens": 9, "total_tokens": 99},
        }  # fmt: skip
        data = json.dumps(answer).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Keep the test output clean."""


@pytest.fixture
def endpoint() -> Iterator[Callable[..., Endpoint]]:
    running: list[Endpoint] = []

    def start(reply: str, status: int = 200) -> Endpoint:
        server = Endpoint(reply, status)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def test_a_judge_asks_an_openai_compatible_endpoint_once(endpoint: Callable[..., Endpoint], tmp_path: Path) -> None:
    server = endpoint(said("Say it in one line. Leave the story out. And more."))
    judge = Judge("m/judge", base_url=server.url, cache_dir=tmp_path)
    first, second = judge(context()), judge(context())
    assert first == second
    assert first is not None
    assert (first.text, first.writer, first.kind, first.call_id) == (
        "Say it in one line. Leave the story out.",
        "judge",
        "style_wordy",
        "call-0",
    )
    assert first.rule.startswith("m/judge@")
    ((path, key, body),) = server.seen
    assert path == "/v1/chat/completions"
    assert (body["model"], body["temperature"], len(body["messages"])) == ("m/judge", 0.0, 1)
    assert "It is too long." in body["messages"][0]["content"]
    assert (judge.num_asked, judge.num_cached, judge.usage["total_tokens"]) == (1, 1, 99)
    assert key == "Bearer none", "a key of the user's must never go to an endpoint it was not given for"


def test_a_given_key_is_sent(endpoint: Callable[..., Endpoint]) -> None:
    server = endpoint(said("Short."))
    Judge("m", base_url=server.url, token="given")(context())
    assert server.seen[0][1] == "Bearer given"


def test_an_answer_that_is_not_valid_unicode_is_repaired_before_it_is_kept(tmp_path: Path) -> None:
    _, complete = asked([said("Say \ud800 in one line.")])
    for _ in range(2):  # the second time from the cache
        hint = Judge("m", complete=complete, cache_dir=tmp_path)(context())
        assert hint is not None
        assert hint.text == "Say \ufffd in one line."


@pytest.mark.parametrize(("reply", "status"), [("x", 500), ("x", 401), ("", 200)], ids=["500", "401", "empty"])
def test_an_endpoint_that_fails_gives_no_hint_and_is_counted(
    endpoint: Callable[..., Endpoint], reply: str, status: int
) -> None:
    judge = Judge("m", base_url=endpoint(reply, status).url)
    assert judge(context()) is None
    assert sum(judge.problems.values()) == 1


def test_an_endpoint_that_is_not_there_gives_no_hint() -> None:
    judge = Judge("m", base_url="http://127.0.0.1:9/v1", timeout=2)
    assert judge(context()) is None
    assert sum(judge.problems.values()) == 1


def test_the_judge_is_asked_only_if_cheaper_writers_have_no_hint() -> None:
    prompts, complete = asked([said("Say less.")])
    judge = Judge("m", complete=complete)
    hint = write_hint(context(), (lambda _: None, judge))
    assert hint is not None
    assert (hint.text, len(prompts)) == ("Say less.", 1)


def test_a_trace_that_was_never_redacted_is_refused() -> None:
    site = ErrorSite("style_wordy", "model", "text", 1.0, "mine", "Bash", "c1", "It is too long.")
    messages = (Message("user", "x"), Message("assistant", "", (ToolCall("Bash", {"command": "ls"}, "c1"),)))
    trace = Trace("t", "x", "s", messages, (Step("s", 0, 1, ((0, 1),), error_sites=(site,)),))
    prompts, complete = asked([said("Say less.")])
    with pytest.raises(UnredactedTrace, match="was never redacted"):
        write_hints(trace, (Judge("m", complete=complete),))
    assert prompts == []
    assert issubclass(UnredactedTrace, exits.Refused)
    allowed = write_hints(trace, (Judge("m", complete=complete, allow_unredacted=True),))
    assert allowed.steps[0].hints[0].text == "Say less."


def later(command: str, output: str, ok: bool = True) -> LaterCall:
    return LaterCall(Action(ToolCall("Bash", {"command": command}, "call-1"), output), ok)


def test_the_judge_sees_the_call_the_next_steps_and_the_last_words() -> None:
    messages = (Message("user", "x"), Message("assistant", "All done: see the release page."))
    trace = Trace("t", "x", "s", messages, (), redaction="r1")
    site = dataclasses.replace(
        context(trace=trace), later=(later("ls -a", "README.md"), later("cat x", "no x", ok=False))
    )
    prompt = prompt_of(site)
    for shown in (
        '{"command":"ls"}',
        "It is too long.",
        "ls -a",
        "worked: README.md",
        "failed: no x",
        "the release page",
    ):
        assert shown in prompt


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (said("Use ls -a.", "README.md"), ""),
        (said("Use ls -a.", "worked:\n  README.md"), ""),
        (said("Use ls -a.", "it says so"), "span is not in the session"),
        (said("Use ls -a.", "READ"), "span is not in the session"),
        (said("Use ls -a.", "Kind of mistake"), "span is not in the session"),
        ("{}", "abstains"),
        ('{"hint": ""}', "abstains"),
        ("Use ls -a.", "answer is no object"),
        ("[1]", "answer is no object"),
    ],
)
def test_a_hint_needs_words_of_the_session_that_prove_it(answer: str, problem: str) -> None:
    judge = Judge("m", complete=asked([answer])[1])
    hint = judge(dataclasses.replace(context(), later=(later("ls -a", "README.md"),)))
    assert (hint is not None) == (problem == "")
    assert dict(judge.problems) == ({} if problem in ("", "abstains") else {problem: 1})


def test_an_abstention_is_paid_for_once(tmp_path: Path) -> None:
    prompts, complete = asked(["{}"])
    for _ in range(2):
        assert Judge("m", complete=complete, cache_dir=tmp_path)(context()) is None
    assert len(prompts) == 1


def test_a_hint_of_the_judge_that_quotes_the_failed_call_is_dropped() -> None:
    failed = dataclasses.replace(context(), call=ToolCall("Bash", {"command": "cat src/old.py"}, "call-0"))
    for text, kept in (("Use src/new.py, not src/old.py.", False), ("Use src/new.py.", True)):
        judge = Judge("m", complete=asked([said(text)])[1])
        assert (write_hint(failed, (judge,)) is not None) == kept


# ------------------------------------------------------------------------------------------------------------ cache


def test_another_judge_finds_the_answer_on_disk(tmp_path: Path) -> None:
    Judge("m", complete=asked([said("Say less.")])[1], cache_dir=tmp_path)(context())
    prompts, complete = asked([said("Other.")])
    hint = Judge("m", complete=complete, cache_dir=tmp_path)(context())
    assert hint is not None
    assert (hint.text, prompts) == ("Say less.", [])


def test_another_model_asks_again(tmp_path: Path) -> None:
    Judge("m", complete=asked([said("Say less.")])[1], cache_dir=tmp_path)(context())
    hint = Judge("n", complete=asked([said("Other.")])[1], cache_dir=tmp_path)(context())
    assert hint is not None
    assert hint.text == "Other."


def test_a_memory_address_does_not_change_the_key() -> None:
    judge = Judge("m", complete=asked([""])[1])
    one, two, other = (
        prompt_of(context(f"<Error at {address}>")) for address in ("0x7f8b11aa", "0x7f8b22bb", "elsewhere")
    )
    assert judge.key_of(one) == judge.key_of(two) != judge.key_of(other)


def test_a_key_is_the_same_in_every_process() -> None:
    program = (
        "from composer_hub.hints.judge import Judge, prompt_of\n"
        "from composer_hub.errors.context import SiteContext\n"
        "from composer_hub.records import ErrorSite, ToolCall\n"
        "site = ErrorSite('style_wordy', 'model', 'text', 0.9, 'mine', 'Bash', 'call-0', 'It is too long.')\n"
        "context = SiteContext(site, ToolCall('Bash', {'command': 'ls'}, 'call-0'))\n"
        "print(Judge('m', complete=str).key_of(prompt_of(context)))\n"
    )
    root = Path(__file__).parent.parent
    found = {
        subprocess.run(
            [sys.executable, "-c", program], cwd=root, env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert found == {Judge("m", complete=str).key_of(prompt_of(context()))}


@pytest.mark.parametrize(
    "torn", ["", "{", "[]", '{"key": "other", "text": "wrong"}', '{"text": "wrong"}', "\x00\xff", '{"key": 1}']
)
def test_a_torn_cache_entry_is_ignored_and_written_again(tmp_path: Path, torn: str) -> None:
    Judge("m", complete=asked([said("Say less.")])[1], cache_dir=tmp_path)(context())
    (entry,) = tmp_path.glob("*.json")
    whole = entry.read_bytes()
    entry.write_text(torn, "latin-1")
    hint = Judge("m", complete=asked([said("Say less.")])[1], cache_dir=tmp_path)(context())
    assert hint is not None
    assert hint.text == "Say less."
    assert entry.read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_no_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    judge = Judge("m", complete=asked([said("Say less.")])[1], cache_dir=tmp_path / "file")
    assert judge(context()) is not None
    assert judge.problems["cache not writable"] == 1


def _fill(folder: str, name: str, start: Any) -> None:
    start.wait()
    judge = Judge(
        "m", complete=lambda prompt: said(f"Hint of {name}. " + "Longer. " * 20, "the site"), cache_dir=folder
    )
    for number in range(40):
        judge._known.clear()
        hint = judge(context(f"the site {number % 4}"))
        assert hint is not None
        assert hint.text.startswith("Hint of ")
    assert not judge.problems


def test_two_processes_may_fill_one_cache_at_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Event()
    workers = [spawn.Process(target=_fill, args=(str(tmp_path), name, start)) for name in ("one", "two")]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join(600)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"] * 4


# ----------------------------------------------------------------------------------------------------------- budget


def test_a_budget_sees_each_call_and_its_usage() -> None:
    settled: list[dict[str, Any]] = []

    def budget(prompt: str, send: Callable[[], Answer]) -> Answer:
        answer = send()
        settled.append(answer.usage)
        return answer

    judge = Judge("m", complete=lambda _: Answer(said("Say less."), {"total_tokens": 5}), budget=budget)
    judge(context())
    judge(context())
    assert settled == [{"total_tokens": 5}]


def test_a_full_budget_ends_the_asking_and_not_the_run() -> None:
    calls: list[str] = []

    def full(prompt: str, send: Callable[[], Answer]) -> Answer:
        calls.append(prompt)
        raise exits.Stopped("The cap of $1 is reached.")

    judge = Judge("m", complete=asked(["x"])[1], budget=full)
    assert [judge(context("a")), judge(context("b"))] == [None, None]
    assert (len(calls), judge.problems["budget reached"]) == (1, 1)


# ----------------------------------------------------------------------------------------------------------- clamping


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("One. Two. Three.", "One. Two."),
        ("Hint: Use `a.b` on v1.2 first.", "Use `a.b` on v1.2 first."),
        ("<think>hm. Well.</think>Read it first.", "Read it first."),
        ('"Read it first."', "Read it first."),
        ("Read\nit\n\nfirst", "Read it first"),
        ("", ""),
    ],
    ids=["three", "label and dots", "thinking", "quotes", "lines", "nothing"],
)
def test_an_answer_is_clamped_to_two_sentences(said: str, kept: str) -> None:
    assert two_sentences(said) == kept


def test_a_runaway_answer_is_cut_at_a_word() -> None:
    cut = two_sentences("word " * 100_000)
    assert len(cut) <= MAX_CHARS
    assert cut.endswith("word…")
    assert two_sentences(f"Short one. {'Long ' * 200}.") == "Short one."
