"""Pairs become the student's own tokens, and reference log-probs hold only under their fingerprint."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.environments.desk import Desk  # noqa: E402
from composer_hub.records import (  # noqa: E402
    MARKER,
    Message,
    Pair,
    ToolCall,
)
from composer_hub.train.tokens import (  # noqa: E402
    Encoded,
    Fingerprint,
    FingerprintError,
    PairEncoder,
    RefLogps,
    ref_rows,
    reference_logps,
    reference_of,
)


def desk_pair(a: int = 2, b: int = 5, **changes: Any) -> Pair:
    from transformers.utils import get_json_schema

    def call(name: str) -> tuple[Message, ...]:
        return (Message("assistant", tool_calls=(ToolCall(name, {"a": a, "b": b}, "c1"),)),)

    pair = Pair(
        pair_id=f"pair-{a}-{b}", trace_id="t", step_id=f"s-{a}-{b}", index=0, num_steps=1,
        prompt=(Message("user", f"{a}+{b}"),), chosen=call("add"), rejected=call("plus"),
        tools=(get_json_schema(Desk().add),), level="L2", num_agree=2, num_votes=2, teachers=("x", "y"),
        excluded_teachers=(), families=("f", "g"), chosen_teacher="x", source_model="m", source_family="z",
    )  # fmt: skip
    return dataclasses.replace(pair, **changes)


def ids_of(encoded: Encoded) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(list(encoded.pairs))])


def test_an_answer_is_the_tokens_that_sampling_would_give(world: Any) -> None:
    _, tokenizer = world
    encoder = PairEncoder.of(tokenizer)
    tokens = encoder.encode([desk_pair()]).pairs["pair-2-5"]
    assert tokenizer.decode(tokens.prompt_ids).endswith("<|im_start|>assistant\n")
    answer = tokenizer.decode(tokens.chosen_ids)
    assert '"name": "add"' in answer
    assert answer.endswith("<|im_end|>")
    assert answer.count("<|im_end|>") == 1


def test_a_prompt_with_tool_results_keeps_its_tokens_when_the_answer_follows(world: Any) -> None:
    _, tokenizer = world
    encoder = PairEncoder.of(tokenizer)
    earlier = (
        Message("user", "2+5"),
        Message("assistant", tool_calls=(ToolCall("plus", {"a": 2, "b": 5}, "c0"),)),
        Message("tool", "{'error': 'Tool plus not found.'}", tool_call_id="c0", name="plus"),
    )
    encoded = encoder.encode([desk_pair(prompt=earlier)])
    assert not encoded.dropped
    assert "Tool plus not found" in tokenizer.decode(encoded.pairs["pair-2-5"].prompt_ids)


def test_a_token_of_a_pair_takes_four_bytes(world: Any) -> None:
    (pair,) = PairEncoder.of(world[1]).encode([desk_pair(1, 2)]).pairs.values()
    assert {memoryview(ids).itemsize for ids in (pair.prompt_ids, pair.chosen_ids, pair.rejected_ids)} == {4}


def test_pairs_that_cannot_be_learned_from_are_counted_by_reason(world: Any) -> None:
    _, tokenizer = world
    pair = desk_pair()
    same = dataclasses.replace(pair, pair_id="same", rejected=pair.chosen)
    long = dataclasses.replace(pair, pair_id="long", prompt=(Message("user", "9 " * 300),))
    encoded = PairEncoder.of(tokenizer, max_tokens=300).encode([pair, same, long])
    assert list(encoded.pairs) == ["pair-2-5"]
    assert encoded.dropped == {"same_tokens": 1, "longer_than_max_tokens": 1}


def test_a_prompt_that_is_too_long_is_cut_to_a_window_of_whole_groups(world: Any) -> None:
    _, tokenizer = world
    prompt = [Message("user", "2+5")]
    for number in range(12):
        prompt.append(Message("assistant", tool_calls=(ToolCall("add", {"a": number, "b": 0}, f"c{number}"),)))
        prompt.append(Message("tool", str(number), tool_call_id=f"c{number}", name="add"))
    pair = desk_pair(prompt=tuple(prompt))
    whole = PairEncoder.of(tokenizer).one(pair)
    limit = len(whole.prompt_ids) * 2 // 3
    tokens = PairEncoder.of(tokenizer, max_tokens=limit).one(pair)
    text = tokenizer.decode(tokens.prompt_ids)
    assert f"2+5\n\n{MARKER}" in text
    assert 1 < text.count("<tool_response>") < 12
    longest = len(tokens.prompt_ids) + max(len(tokens.chosen_ids), len(tokens.rejected_ids))
    assert limit - 60 < longest <= limit
    assert (tokens.chosen_ids, tokens.rejected_ids) == (whole.chosen_ids, whole.rejected_ids)


def test_a_template_that_rewrites_earlier_turns_is_noticed(world: Any) -> None:
    tokenizer = copy.deepcopy(world[1])
    tokenizer.chat_template = "{% for m in messages %}[{{ messages|length }}{{ m.role }}]{{ m.content }}{% endfor %}"
    encoded = PairEncoder(tokenizer, tokenizer.chat_template).encode([desk_pair()])
    assert encoded.dropped == {"template_rewrites_the_prompt": 1}


def test_reference_log_probs_are_those_of_the_full_logits_at_temperature_one(world: Any) -> None:
    model, tokenizer = world
    pairs = list(PairEncoder.of(tokenizer).encode([desk_pair(a, 5) for a in range(3)]).pairs.values())
    batched = reference_logps(model, pairs, batch_size=3)
    for pair, (chosen, rejected) in zip(pairs, batched, strict=True):
        for answer, value in ((pair.chosen_ids, chosen), (pair.rejected_ids, rejected)):
            ids = torch.tensor([[*pair.prompt_ids, *answer]])
            logps = model(input_ids=ids).logits.float().log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None])[:, 0]
            assert value == pytest.approx(logps[-len(answer) :].sum().item(), abs=1e-3)


def test_the_fingerprint_does_not_change_with_use_but_with_the_vocabulary(world: Any) -> None:
    tokenizer = copy.deepcopy(world[1])
    before = PairEncoder.of(tokenizer).fingerprint("m", "r")
    tokenizer(["a", "a b"], padding=True, truncation=True, max_length=4)
    assert PairEncoder.of(tokenizer).fingerprint("m", "r") == before
    tokenizer.add_tokens(["<new>"])
    assert PairEncoder.of(tokenizer).fingerprint("m", "r") != before


def test_published_log_probs_come_back_beside_their_pairs(world: Any) -> None:
    model, tokenizer = world
    encoder = PairEncoder.of(tokenizer)
    encoded = encoder.encode([desk_pair(), desk_pair(1, 1)])
    fingerprint = encoder.fingerprint("me/model", "abc")
    rows = ref_rows(model, encoded, fingerprint)
    values = reference_of(ids_of(encoded), reversed(rows), fingerprint)
    assert list(values[::2]) == [row.ref_chosen_logps for row in rows]
    assert list(values[1::2]) == [row.ref_rejected_logps for row in rows]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("model_revision", "other"),
        ("tokenizer", "other"),
        ("template", "other"),
        ("max_tokens", 7),
        ("temperature", 0.7),
    ],
)
def test_log_probs_made_under_other_conditions_are_refused(world: Any, column: str, value: Any) -> None:
    encoder = PairEncoder.of(world[1])
    encoded = encoder.encode([desk_pair()])
    ours = encoder.fingerprint("me/model", "abc")
    theirs = dataclasses.replace(ours, **{column: value})
    row = RefLogps("pair-2-5", -1.0, -2.0, theirs.text())
    with pytest.raises(FingerprintError, match=column):
        reference_of(ids_of(encoded), [row], ours)


def test_one_foreign_row_among_right_ones_is_refused(world: Any) -> None:
    encoder = PairEncoder.of(world[1])
    encoded = encoder.encode([desk_pair(), desk_pair(1, 1)])
    ours = encoder.fingerprint("me/model", "abc")
    foreign = dataclasses.replace(ours, model_revision="def")
    rows = [RefLogps("pair-2-5", -1.0, -2.0, ours.text()), RefLogps("pair-1-1", -1.0, -2.0, foreign.text())]
    with pytest.raises(FingerprintError, match="model_revision is def, here abc"):
        reference_of(ids_of(encoded), rows, ours)


def test_pairs_without_log_probs_are_refused(world: Any) -> None:
    encoder = PairEncoder.of(world[1])
    encoded = encoder.encode([desk_pair()])
    with pytest.raises(FingerprintError, match="precompute-ref"):
        reference_of(ids_of(encoded), [], encoder.fingerprint("m", "r"))


def test_the_same_commit_under_another_name_is_the_same_model() -> None:
    from composer_hub.train.tokens import check_fingerprint

    check_fingerprint(Fingerprint("a/m", "sha", "t", "c", 10), Fingerprint("b/m", "sha", "t", "c", 10))
