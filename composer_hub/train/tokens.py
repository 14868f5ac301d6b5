"""Published pairs as tokens of the student, with the log-probs that the reference gives them.

In: `Pair` records and the student's tokenizer. Out: `TokenPair`s whose answers are the tokens that the student would
have sampled, with reference log-probs at temperature 1, and the `Fingerprint` under which those numbers hold.
"""

from __future__ import annotations

import itertools
import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from torch import nn

from composer_hub import exits
from composer_hub.pairs.windows import MAX_TOKENS, VERSION, window_of
from composer_hub.records import Message, Pair, canonical_json, stable_id, to_row
from composer_hub.train.pair_loader import TokenPair
from composer_hub.train.stream import StreamError
from composer_hub.train.teacher import HintTeacher
from composer_hub.train.uplift import action_logps

_TOO_LONG = "longer_than_max_tokens"


class FingerprintError(exits.Refused, ValueError):
    """Reference log-probs from other conditions than this run's."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The conditions under which reference log-probs hold."""

    model: str
    model_revision: str
    tokenizer: str  # digest
    template: str  # digest
    max_tokens: int
    temperature: float = 1.0
    window: str = ""  # version of the rule that cuts prompts

    @property
    def digest(self) -> str:
        return stable_id(to_row(self))

    def text(self) -> str:
        """Return it as the column `fingerprint` holds it."""
        return canonical_json(to_row(self))

    @classmethod
    def read(cls, text: str) -> Fingerprint:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class RefLogps:
    """The reference's log-probs of one pair: a row of the `ref` config."""

    pair_id: str
    ref_chosen_logps: float  # log p of the whole answer at temperature 1
    ref_rejected_logps: float
    fingerprint: str


@dataclass
class Encoded:
    """Pairs as tokens by id, in their original order, and the reasons why others are missing."""

    pairs: dict[str, TokenPair] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class PairEncoder:
    """Turns pairs into tokens with the template that rollouts of the same student use.

    A prompt that is too long is cut to its longest window that fits.
    """

    tokenizer: Any
    template: str
    max_tokens: int = MAX_TOKENS
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, tokenizer: Any, *, max_tokens: int = MAX_TOKENS, template_kwargs: Mapping[str, Any] | None = None
    ) -> PairEncoder:
        """Use TRL's prefix-preserving variant of the tokenizer's template if there is one."""
        from trl.chat_template_utils import get_training_chat_template

        if not tokenizer.chat_template:
            raise StreamError("The tokenizer has no chat template: name a model whose tokenizer has one.")
        try:
            template = get_training_chat_template(tokenizer) or tokenizer.chat_template
        except ValueError:
            # TRL does not know this template; each pair shows whether it preserves prefixes.
            template = tokenizer.chat_template
        return cls(tokenizer, template, max_tokens, dict(template_kwargs or {}))

    def encode(self, pairs: Iterable[Pair]) -> Encoded:
        """Encode every pair that can be learned from exactly; count the others by reason."""
        encoded = Encoded()
        encoded.pairs.update(self.each(pairs, encoded.dropped))
        return encoded

    def each(self, pairs: Iterable[Pair], dropped: Counter[str]) -> Iterator[tuple[str, TokenPair]]:
        """Yield the id and tokens of every pair that can be learned from exactly; count the others by reason."""
        for pair in pairs:
            tokens = self.one(pair)
            if isinstance(tokens, str):
                dropped[tokens] += 1
            else:
                yield pair.pair_id, tokens

    def one(self, pair: Pair) -> TokenPair | str:
        """Return a pair as tokens, or why it cannot be."""
        tokens = self._tokens(pair, pair.prompt, pair.tools)
        if tokens != _TOO_LONG:
            return tokens
        answers = (*pair.chosen, *pair.rejected)
        window = window_of(
            pair.prompt, answers, pair.tools, lambda messages, tools: self._tokens(pair, messages, tools) != _TOO_LONG
        )
        return self._tokens(pair, window.messages, window.tools)

    def _tokens(self, pair: Pair, messages: Sequence[Message], tools: Sequence[Any]) -> TokenPair | str:
        prompt = self.text(messages, tools, add_generation_prompt=True)
        ids = self.ids(prompt)
        if len(ids) >= self.max_tokens:
            return _TOO_LONG  # checked first, because rendering a long session twice more is slow
        answers = [self.answer(prompt, messages, side, tools) for side in (pair.chosen, pair.rejected)]
        if None in answers:
            return "template_rewrites_the_prompt"
        # Tokenized separately where sampling starts: a rollout never merges tokens across that boundary.
        chosen, rejected = (self.ids(text or "") for text in answers)
        if not chosen or not rejected:
            return "empty_answer"
        if chosen == rejected:
            return "same_tokens"
        if len(ids) + max(len(chosen), len(rejected)) > self.max_tokens:
            return _TOO_LONG
        return TokenPair(ids, chosen, rejected, 0.0, 0.0)

    def fingerprint(self, model: str, revision: str) -> Fingerprint:
        """Return the conditions under which log-probs of this encoder's pairs by a model hold."""
        return Fingerprint(
            model,
            revision,
            tokenizer_digest(self.tokenizer),
            stable_id(self.template)[:16],
            self.max_tokens,
            window=VERSION,
        )

    def answer(
        self, prompt: str, messages: Sequence[Message], side: Sequence[Message], tools: Sequence[Any]
    ) -> str | None:
        """Return the text of an answer to a prompt, or None if the template then rewrites the prompt."""
        whole = self.text((*messages, *side), tools, add_generation_prompt=False)
        if not whole.startswith(prompt):
            return None
        answer = whole[len(prompt) :]
        end = answer.rfind(self.tokenizer.eos_token)
        # The line break that templates put after the end mark is never sampled.
        return answer if end < 0 else answer[: end + len(self.tokenizer.eos_token)]

    def text(self, messages: Sequence[Message], tools: Sequence[Any], *, add_generation_prompt: bool) -> str:
        """Return a chat as text."""
        return self.tokenizer.apply_chat_template(
            [message.to_chat() for message in messages],
            tools=list(tools) or None,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            chat_template=self.template,
            **self.template_kwargs,
        )

    def ids(self, text: str) -> array[int]:
        """Return the tokens of a text as a compact array."""
        return array("i", self.tokenizer(text, add_special_tokens=False)["input_ids"])


def reasons_text(dropped: Mapping[str, int]) -> str:
    """Return why pairs were left out, for messages."""
    return ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in dropped.items())


def tokenizer_digest(tokenizer: Any) -> str:
    """Return a digest of the rules that turn text into ids."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return stable_id(tokenizer.get_vocab())[:16]
    parts = json.loads(backend.to_str())
    # Settings of the last call, not of the tokenizer.
    parts.pop("truncation", None)
    parts.pop("padding", None)
    return stable_id(parts)[:16]


def reference_logps(model: nn.Module, pairs: Sequence[TokenPair], *, batch_size: int = 4) -> list[tuple[float, float]]:
    """Return (log p(chosen), log p(rejected)) of each pair at temperature 1."""
    rows = [(pair.prompt_ids, side) for pair in pairs for side in (pair.chosen_ids, pair.rejected_ids)]
    values = action_logps(HintTeacher("live", model), rows, rows_a_batch=2 * batch_size)
    return list(zip(values[::2], values[1::2], strict=True))


def ref_rows(model: nn.Module, encoded: Encoded, fingerprint: Fingerprint, *, batch_size: int = 4) -> list[RefLogps]:
    """Return the `ref` rows of all encoded pairs."""
    text = fingerprint.text()
    values = reference_logps(model, list(encoded.pairs.values()), batch_size=batch_size)
    return [RefLogps(pair_id, *both, text) for pair_id, both in zip(encoded.pairs, values, strict=True)]


def reference_of(pair_ids: pa.ChunkedArray, rows: Iterable[RefLogps], expected: Fingerprint) -> array[float]:
    """Return published reference log-probs in the order of the pairs, chosen before rejected.

    Rows from other conditions are refused.
    """
    rows, parts, texts = iter(rows), [], set[str]()
    while part := list(itertools.islice(rows, 10_000)):  # as Arrow, ids take a fraction of their memory as objects
        texts |= {row.fingerprint for row in part}
        chosen, rejected = ([getattr(row, name) for row in part] for name in ("ref_chosen_logps", "ref_rejected_logps"))
        parts.append(pa.table({"id": [row.pair_id for row in part], "chosen": chosen, "rejected": rejected}))
    for text in sorted(texts):
        check_fingerprint(Fingerprint.read(text), expected)
    known = pa.concat_tables(parts) if parts else pa.table({"id": pa.array([], pa.string())})
    places = pc.index_in(pair_ids, known["id"])
    if places.null_count:
        first = pair_ids.filter(pc.is_null(places))[0]
        raise FingerprintError(
            f"{places.null_count:,} of {len(pair_ids):,} pairs have no reference log-probs (the first is {first}): run "
            "`composer-hub pairs precompute-ref` on this revision again."
        )
    values = array("d", bytes(16 * len(pair_ids)))
    for offset, name in enumerate(("chosen", "rejected")):
        values[offset::2] = array("d", known[name].take(places).to_numpy().tobytes())
    return values


def check_fingerprint(published: Fingerprint, expected: Fingerprint) -> None:
    """Refuse log-probs of another model, tokenizer, template, truncation or temperature, and name the difference."""
    theirs, ours = to_row(published), to_row(expected)
    if _same_model(theirs, ours):
        theirs["model"] = ours["model"]
    different = [f"{name} is {theirs[name]}, here {ours[name]}" for name in ours if theirs[name] != ours[name]]
    if different:
        raise FingerprintError(
            f"The published reference log-probs do not fit this run: {'; '.join(different)}. Make new ones with "
            "`composer-hub pairs precompute-ref`, or train from the model and revision they were made with."
        )


def _same_model(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    # A commit or a digest of the weights identifies a model, even if its repository or folder was renamed.
    return theirs["model_revision"] == ours["model_revision"]
