"""The tiny models that the package ships, so that every machine starts from the same weights.

In: a name. Out: a Qwen3 with 0.2 to 0.3 million parameters and its tokenizer. `scripts/small_models.py` made
them, and describes what they have learned. Nothing is downloaded and nothing is trained.
"""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from composer_hub.hub import digest_of
from composer_hub.train.models import ModelFolderError

SMALL = {
    "small": "sha256:645b988df44e474e7867070d75039b654cf0d38b63cd2648468507e7378fa070",
    "small-beginner": "sha256:d2941d6403bc9f21369237e6ec31fcc7e4172da168608f7cc25153076d1e1d49",
    "small-coding": "sha256:4c3981057c3add590c88e0520fa756fff05c2ff733323303d6cc48932f001ca0",
}
"""The digest of each model's weights and configuration."""
HOME = Path(__file__).parent / "small"


def small_folder(name: str, home: Path = HOME) -> Path:
    """Return the folder of a shipped model, whose weights have their digest."""
    folder = home / name
    if not folder.is_dir() or digest_of(folder) != SMALL[name]:
        raise ModelFolderError(f"{folder} is missing or damaged. Install composer-hub again.")
    return folder


def small_model(name: str = "small") -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """Return a shipped model and its tokenizer."""
    folder = small_folder(name)
    return Qwen3ForCausalLM.from_pretrained(folder), PreTrainedTokenizerFast.from_pretrained(folder)
