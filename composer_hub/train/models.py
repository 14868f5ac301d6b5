"""Models and tokenizers from a folder, and the device they run on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from composer_hub import exits


class ModelFolderError(exits.ComposerError, ValueError):
    """A folder whose model or tokenizer cannot be loaded."""


def load_model(folder: Path, **options: Any) -> Any:
    """Return the causal language model of a folder; nothing is downloaded and none of its code runs."""
    try:
        return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, **options)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelFolderError(
            f"{folder} holds no causal language model that transformers can load: {error}"
        ) from error


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a folder, able to pad."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, padding_side="left")
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{folder} holds no tokenizer that transformers can load: {error}") from error
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        # If the files are missing, transformers makes a tokenizer without words.
        raise ModelFolderError(f"{folder} holds no tokenizer: put the tokenizer files of its model there.")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def pick_device(name: str = "auto") -> torch.device:
    """Return the device of a name; auto is the first accelerator, or the CPU."""
    if name != "auto":
        return torch.device(name)
    return torch.accelerator.current_accelerator() or torch.device("cpu")
