"""Run any model for token classification of the Hub as a tagger of private spans (`ingest --reader`).

In: `owner/name`, `owner/name@revision` or a folder. Out: a `Tagger`. Only safetensors are loaded, no code of the
repository runs, and what was loaded is one commit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForTokenClassification, AutoTokenizer

from composer_hub import exits
from composer_hub.hub import Destination
from composer_hub.hub.models import Model, ModelError, fetch_model
from composer_hub.redact.reader import Tagged

MAX_TOKENS = 1024
"""Tokens of a window; a longer piece is read in several."""
OVERLAP = 64
BATCH = {"cuda": 64, "mps": 16, "cpu": 8}
_BORDERS = ("B-", "I-", "E-", "S-", "L-", "U-")


class TokenClassifier:
    """A model for token classification, on the best device of this machine."""

    def __init__(self, model: Model) -> None:
        self.name, self.revision = model.name, model.revision
        self.device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        self._model, self._tokenizer = _loaded(model)
        self._model.to(self.device).eval()
        config = self._model.config
        longest = min(self._tokenizer.model_max_length, getattr(config, "max_position_embeddings", MAX_TOKENS) - 2)
        self._window = max(8, min(MAX_TOKENS, longest))
        self._label_of = {number: _bare(label) for number, label in config.id2label.items()}
        self.labels: Sequence[str] = sorted({label for label in self._label_of.values() if label})

    def num_tokens(self, texts: Sequence[str]) -> int:
        return sum(map(len, self._tokenizer(list(texts), add_special_tokens=False)["input_ids"]))

    def __call__(self, texts: Sequence[str]) -> list[list[Tagged]]:
        found: list[list[Tagged]] = [[] for _ in texts]
        # Pieces of one length share a batch, so that little of it is padding.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        size = BATCH[self.device]
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            for i, spans in zip(batch, self._tag([texts[i] for i in batch]), strict=True):
                found[i] = spans
        return found

    @torch.inference_mode()
    def _tag(self, texts: list[str]) -> list[list[Tagged]]:
        windows = self._tokenizer(
            texts,
            truncation=True,
            max_length=self._window,
            stride=min(OVERLAP, self._window // 4),
            padding=True,
            return_tensors="pt",
            return_offsets_mapping=True,
            return_overflowing_tokens=True,
        )
        inputs = {name: windows[name].to(self.device) for name in ("input_ids", "attention_mask")}
        chosen = self._model(**inputs).logits.argmax(-1).tolist()
        found: list[list[Tagged]] = [[] for _ in texts]
        rows = zip(
            windows["overflow_to_sample_mapping"].tolist(), windows["offset_mapping"].tolist(), chosen, strict=True
        )
        for text, offsets, numbers in rows:
            found[text] = _merged(found[text] + self._spans(texts[text], offsets, numbers))
        return found

    def _spans(self, text: str, offsets: Sequence[Sequence[int]], numbers: Sequence[int]) -> list[Tagged]:
        spans: list[Tagged] = []
        for (start, end), number in zip(offsets, numbers, strict=True):
            label = self._label_of[number]
            if not label or start == end:  # ordinary, or a token of the tokenizer's own
                continue
            if spans and spans[-1].label == label and not text[spans[-1].end : start].strip(" "):
                spans[-1] = Tagged(spans[-1].start, end, label)
            else:
                spans.append(Tagged(start, end, label))
        return spans


def open_tagger(where: Destination, name: str) -> TokenClassifier:
    """Fetch a model at one commit and load it."""
    try:
        return TokenClassifier(fetch_model(where, name))
    except ModelError as error:
        raise exits.UsageError(
            f"--reader: {str(error).replace('so it cannot be trained', 'so it is not loaded')}"
        ) from error


def _loaded(model: Model) -> tuple[Any, Any]:
    config = json.loads((model.folder / "config.json").read_text(encoding="utf-8"))
    classes = config.get("architectures") or ["no class"]
    if not any(name.endswith("ForTokenClassification") for name in classes):
        # transformers would add a head of random weights.
        raise exits.UsageError(
            f"--reader: {model.name} is {' and '.join(classes)}, which tags no tokens. Name a model for token "
            "classification, such as hf:openai/privacy-filter."
        )
    try:
        loaded, report = AutoModelForTokenClassification.from_pretrained(
            model.folder, local_files_only=True, trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(model.folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise exits.UsageError(
            f"--reader: transformers cannot load {model.name}: {str(error).splitlines()[0]}"
        ) from error
    if missing := sorted(report["missing_keys"]):
        raise exits.UsageError(f"--reader: {model.name} lacks weights ({', '.join(missing[:3])}), so it is not loaded.")
    if not tokenizer.is_fast:
        raise exits.UsageError(f"--reader: {model.name} has no tokenizer.json, which gives the places of its tokens.")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    return loaded, tokenizer


def _bare(label: str) -> str:
    """Return a label without its border, and nothing for ordinary text."""
    return "" if label == "O" else label[2:] if label.startswith(_BORDERS) else label


def _merged(spans: list[Tagged]) -> list[Tagged]:
    """Join spans that overlap, as those of two windows do."""
    merged: list[Tagged] = []
    for span in sorted(spans):
        if merged and merged[-1].label == span.label and span.start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(span.end, merged[-1].end))
        else:
            merged.append(span)
    return merged
