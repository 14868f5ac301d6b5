"""A recorded step becomes the tokens of its rollout, or is counted under the reason why it cannot."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from transformers.utils import get_json_schema  # noqa: E402

from composer_hub import exits  # noqa: E402
from composer_hub.environments.desk import UNKNOWN_TOOL, Desk  # noqa: E402
from composer_hub.hints.writers import write_hints  # noqa: E402
from composer_hub.hub import Model  # noqa: E402
from composer_hub.records import ErrorSite, Hint, Message, Step, ToolCall, Trace  # noqa: E402
from composer_hub.redact import without_tokens_of_changed_text  # noqa: E402
from composer_hub.train.batch import HintSite  # noqa: E402
from composer_hub.train.tokens import tokenizer_digest  # noqa: E402
from composer_hub.train.trace_sites import ForeignTraces, Student, TraceEncoder, hint_of  # noqa: E402

STUDENT = Student("me/student", "qwen")
SITE = ErrorSite(
    "tool_not_found", "model", "flag", 0.97, "rollout.tool_not_found", "plus", "c0", "Tool plus not found."
)
HINT = Hint("Reminder: Available tools are: `add`. Use one of these.", "template", "t", 1, "tool_not_found", "c0")


def trace_of(*, step: dict[str, Any] | None = None, **changes: Any) -> Trace:
    """Return a trace of two calls: the first goes to a tool that does not exist, the second is right."""
    messages = (
        Message("user", "2+5"),
        Message("assistant", tool_calls=(ToolCall("plus", {"a": 2, "b": 5}, "c0"),)),
        Message("tool", UNKNOWN_TOOL, tool_call_id="c0", name="plus"),
        Message("assistant", tool_calls=(ToolCall("add", {"a": 2, "b": 5}, "c1"),)),
        Message("tool", "7", tool_call_id="c1", name="add"),
    )
    first = Step("s0", 0, 1, ((0, 1),), (2,), model="qwen3", family="qwen", error_sites=(SITE,), hints=(HINT,))
    first = dataclasses.replace(first, **(step or {}))
    second = Step("s1", 1, 3, ((0, 3),), (4,), model="qwen3", family="qwen")
    trace = Trace("t", "chat_rows", "t", messages, (first, second), tools=(get_json_schema(Desk().add),))
    return dataclasses.replace(trace, **changes)


@pytest.fixture
def encoder(world: Any) -> TraceEncoder:
    return encoder_of(world)


def encoder_of(world: Any, **options: Any) -> TraceEncoder:
    return TraceEncoder.of(copy.deepcopy(world[1]), STUDENT, **{"max_tokens": 1024} | options)


def dropped(encoder: TraceEncoder, trace: Trace) -> dict[str, int]:
    found = encoder.encode([trace])
    assert not found.sites
    return dict(found.dropped)


def test_a_step_is_written_as_a_rollout_would_have_sampled_it(world: Any, encoder: TraceEncoder) -> None:
    (site,) = encoder.encode([trace_of()]).sites
    decode = world[1].decode
    assert decode(site.prefix_ids).endswith("<|im_start|>user\n2+5<|im_end|>\n<|im_start|>assistant\n")
    assert '"name": "add"' in decode(site.prefix_ids)  # the tools on offer
    assert '"plus"' in decode(site.action_ids)
    assert decode(site.action_ids).endswith("<|im_end|>")
    said = f"<|im_start|>user\n{HINT.text}<|im_end|>\n<|im_start|>assistant\n"
    assert decode(site.hinted_ids).endswith(said)
    assert decode(site.hinted_ids).replace(said, "<|im_start|>assistant\n") == decode(site.prefix_ids)
    assert '"name": "add"' in decode(site.corrected_ids)
    assert not site.is_exact


def test_a_written_action_and_its_correction_part_at_the_mistake_and_nowhere_before(
    world: Any, encoder: TraceEncoder
) -> None:
    trace = trace_of()
    later = Message("assistant", "No such tool. I call add.", tool_calls=trace.messages[3].tool_calls)
    named = dataclasses.replace(trace.messages[1], content="I add both.")
    messages = (trace.messages[0], named, trace.messages[2], later, trace.messages[4])
    (site,) = encoder.encode([dataclasses.replace(trace, messages=messages)]).sites
    decode = world[1].decode
    assert "I add both." in decode(site.corrected_ids)
    aimed = site.at_fork()
    assert aimed is not None
    assert decode(aimed.prefix_ids + aimed.action_ids).endswith('{"name": "plus')
    assert decode(aimed.teacher_ids).endswith('{"name": "plus')

    silent = dataclasses.replace(trace, messages=trace.messages[:3], steps=trace.steps[:1])
    assert not encoder.encode([silent]).sites[0].corrected_ids


def test_tokens_of_a_rollout_are_used_only_under_the_tokenizer_that_made_them(
    world: Any, encoder: TraceEncoder
) -> None:
    prompt = encoder.hinter.apply_template([{"role": "user", "content": "x"}], add_generation_prompt=True)
    known = {"prompt_ids": prompt, "completion_ids": [7, 8, 9, 10], "turns": [[0, 2], [3, 4]]}
    ours, theirs = (
        encoder.encode([trace_of(provenance=known | {"tokenizer": digest})]).sites[0]
        for digest in (tokenizer_digest(world[1]), "another")
    )
    assert (ours.is_exact, theirs.is_exact) == (True, False)
    assert (tuple(ours.prefix_ids), tuple(ours.action_ids)) == (tuple(prompt), (7, 8))
    assert tuple(ours.corrected_ids) == (10,)
    assert theirs.action_ids == encoder.encode([trace_of()]).sites[0].action_ids

    rollout = trace_of(provenance=known | {"tokenizer": tokenizer_digest(world[1])})
    text = dataclasses.replace(rollout, cwd="x", messages=(*rollout.messages, Message("user", "[SECRET_1]")))
    (redacted,) = encoder.encode([without_tokens_of_changed_text(rollout, text)]).sites
    assert (redacted.is_exact, redacted.action_ids) == (False, theirs.action_ids)


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"turns": [[0, 9]]},
        {"turns": [[2, 2]]},
        {"turns": [[-1, 2]]},
        {"turns": "no"},
        {"turns": [[0, 2, 3]]},
        {"turns": None},
        {"completion_ids": [7, 10**6]},
        {"completion_ids": [7, -1]},
        {"completion_ids": ["7", "8"]},
        {"completion_ids": [7.5, 8.5]},
        {"prompt_ids": []},
    ],
    ids=str,
)
def test_tokens_that_cannot_be_a_rollouts_are_counted_and_not_read(
    world: Any, encoder: TraceEncoder, known: dict[str, Any]
) -> None:
    good = {"prompt_ids": [5, 6], "completion_ids": [7, 8], "turns": [[0, 2]], "tokenizer": tokenizer_digest(world[1])}
    provenance = good | known if known else {"tokenizer": good["tokenizer"]}
    assert dropped(encoder, trace_of(provenance=provenance)) == {"tokens_do_not_fit": 1}


BROKEN = ErrorSite("api_error", "provider", "flag", 0.97, "flag.provider_error")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"hints": ()}, "no_hint"),
        ({"hints": (dataclasses.replace(HINT, call_id="c9"),)}, "no_hint"),
        ({"error_sites": (SITE, BROKEN)}, "provider_failure"),
        ({"hints": (dataclasses.replace(HINT, writer="control"),)}, "control_hint"),
        ({"reasoning_status": "encrypted"}, "thinking_was_not_recorded"),
    ],
    ids=["no hint", "a hint for another call", "a provider's error", "a control hint", "hidden thinking"],
)
def test_a_step_that_cannot_be_learned_from_has_a_reason(
    encoder: TraceEncoder, step: dict[str, Any], reason: str
) -> None:
    assert dropped(encoder, trace_of(step=step)) == {reason: 1}


@pytest.mark.parametrize("blame", ["provider", "env", "user", "harness", "outcome"])
def test_only_the_models_own_errors_are_learned_from(encoder: TraceEncoder, blame: str) -> None:
    site = dataclasses.replace(SITE, blame=blame)
    assert dropped(encoder, trace_of(step={"error_sites": (site,)})) == {}


def test_a_call_that_no_template_can_write_is_counted(encoder: TraceEncoder) -> None:
    messages = list(trace_of().messages)
    messages[1] = Message("assistant", tool_calls=(ToolCall("plus", '{"a": 2, "b"', "c0"),))
    assert dropped(encoder, trace_of(messages=tuple(messages))) == {"template_cannot_write_it": 1}


def test_sites_longer_than_the_window_are_left_out_and_huge_prompts_are_not_tokenized(world: Any) -> None:
    (site,) = encoder_of(world).encode([trace_of()]).sites
    long = len(site.hinted_ids) + len(site.action_ids)
    assert len(encoder_of(world, max_tokens=long).encode([trace_of()]).sites) == 1
    assert dropped(encoder_of(world, max_tokens=long - 1), trace_of()) == {"longer_than_max_teacher_tokens": 1}
    huge = (Message("user", "x" * 10_000_000), *trace_of().messages[1:])
    assert dropped(encoder_of(world), trace_of(messages=huge)) == {"longer_than_max_teacher_tokens": 1}


def test_a_template_that_rewrites_the_prompt_or_refuses_the_chat_is_counted(world: Any) -> None:
    tokenizer = copy.deepcopy(world[1])
    rewriting = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    for template, reason in (
        (rewriting, "template_rewrites_the_prompt"),
        ("{{ raise_exception('no') }}", "template_cannot_write_it"),
    ):
        tokenizer.chat_template = template
        assert dropped(TraceEncoder.of(tokenizer, STUDENT, max_tokens=1024), trace_of()) == {reason: 1}


def test_another_models_traces_are_refused_left_out_or_taken_as_asked(world: Any) -> None:
    foreign = trace_of(step={"model": "claude-opus-4-7", "family": "anthropic"})
    with pytest.raises(
        ForeignTraces, match=r"claude-opus-4-7, not by the student me/student \(family qwen\)"
    ) as refused:
        encoder_of(world).encode([foreign])
    assert refused.value.exit_code == exits.REFUSED
    assert dropped(encoder_of(world, other_families="leave_out"), foreign) == {"other_family": 1}
    assert len(encoder_of(world, other_families="take").encode([foreign, trace_of()]).sites) == 2


@pytest.mark.parametrize(
    ("model", "family", "own"),
    [
        ("Qwen/Qwen3-4B", "", True),
        ("me/student", "", True),
        ("", "qwen", True),
        ("gpt-5", "", False),
        ("nobody-knows", "", False),
        ("", "", False),
    ],
)
def test_the_author_of_a_step_follows_from_its_family_or_else_from_its_name(model: str, family: str, own: bool) -> None:
    trace = trace_of(step={"model": model, "family": family})
    assert STUDENT.wrote(trace, trace.steps[0]) is own


def test_a_name_that_does_not_tell_its_family_leaves_it_to_the_architecture(world: Any) -> None:
    def family(name: str) -> str:
        return Student.of(Model(name, "0" * 40, Path()), world[0].config).family

    assert family("me/mine") == "qwen"
    assert family("org/Llama-3-8B") == "meta"
    assert family("gpt-lab") == "qwen"  # a folder


def test_control_hints_take_the_places_of_the_real_ones(world: Any) -> None:
    (real,), (control,) = (encoder_of(world, control=on).encode([trace_of()]).sites for on in (False, True))
    assert (real.hint.writer, control.hint.writer) == ("template", "control")
    assert control.prefix_ids == real.prefix_ids
    assert control.inserted_ids != real.inserted_ids


def test_hints_that_ingest_writes_are_hints_to_learn_from(encoder: TraceEncoder) -> None:
    trace = write_hints(trace_of(step={"hints": ()}))
    assert hint_of(trace.steps[0]) is not None
    sites: list[HintSite] = encoder.encode([trace]).sites
    assert [site.hint.writer for site in sites] == ["hindsight"]


def test_an_empty_set_of_traces_gives_nothing(encoder: TraceEncoder) -> None:
    found = encoder.encode([trace_of(steps=()), trace_of(messages=(), steps=())])
    assert (found.sites, found.dropped) == ([], {})
