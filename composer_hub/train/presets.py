"""Config files of runs, and the presets of `configs/` that may be named instead of one. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from composer_hub import exits
from composer_hub.named_files import text_of


def folder() -> Path:
    """Return the folder of the presets: in the installed package, else in the checkout."""
    packaged = Path(str(resources.files("composer_hub") / "configs"))
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "configs"


def presets() -> dict[str, Path]:
    """Return the file of each preset by its name."""
    return {path.stem: path for path in sorted(folder().glob("*.yaml"))}


def with_launch_file(config: Path, accelerate: Sequence[str]) -> list[str]:
    """Return options of accelerate with a file: the one that they name, as a path or by its preset, or the config's."""
    words = list(accelerate)
    if "--config_file" in words[:-1]:
        at = words.index("--config_file") + 1
        named = _launch_file(folder() / words[at])
        return words if Path(words[at]).is_file() or named is None else [*words[:at], str(named), *words[at + 1 :]]
    own = _launch_file(config)
    return words if own is None else ["--config_file", str(own), *words]


def _launch_file(config: Path) -> Path | None:
    path = config.parent / "launch" / f"{config.stem}.yaml"
    return path if path.is_file() else None


def summary(path: Path) -> str:
    """Return the first sentence of a preset's opening comment."""
    comment = [line.lstrip("# ") for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    return " ".join(comment).partition(". ")[0].rstrip(".")


def find_config(name: str) -> Path:
    """Return the file that a word names: a file of this machine, else the preset `name` or `configs/name.yaml`."""
    if (path := Path(name)).is_file():
        return path
    known = presets()
    bare = name.removeprefix("configs/").removesuffix(".yaml")
    if bare not in known:
        raise exits.UsageError(f"There is no config file {name!r}. The presets are {', '.join(known)}.")
    return known[bare]


def read_config(path: Path) -> dict[Any, Any]:
    """Return the options of a config file."""
    try:
        values = yaml.safe_load(text_of(path))
    except (OSError, yaml.YAMLError) as error:
        raise exits.UsageError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(values, dict):
        raise exits.UsageError(f"{path} holds no options. Write one per line, like max_steps: 20.")
    return values


def options_of(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of `--name value` and `--name=value`, read as YAML; an option without a value is True."""
    options: dict[str, Any] = {}
    for word, following in zip(words, [*words, "--"][1:], strict=True):
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            options[name.replace("-", "_")] = _value(value if sign else "true" if following[:2] == "--" else following)
    return options


def _value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def with_config_files(words: Sequence[str]) -> list[str]:
    """Return a training command line whose `--config` names an existing file, as a separate word."""
    found: list[str] = []
    for word in words:
        found += ["--config", word.partition("=")[2]] if word.startswith("--config=") else [word]
    for number, word in enumerate(found):
        if word == "--config":
            found[number + 1 : number + 2] = [str(find_config("".join(found[number + 1 : number + 2])))]
    return found
