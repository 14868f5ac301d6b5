"""Check a training command line before torch is imported: every mistake at once, in a second.

In: the words of the command line. Out: one sentence per mistake. The options of TRL and transformers are read from the
source of their classes, which takes no import.
"""

from __future__ import annotations

import ast
import importlib.util
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from composer_hub import exits, extras
from composer_hub.train.presets import with_config_files
from composer_hub.train.run.checks import missing_packages, problems
from composer_hub.train.run.config_file import nearest, read_config

_SOURCES = (  # package, file, classes; a later class overrides an earlier one, as a subclass does
    ("transformers", "training_args.py", ("TrainingArguments",)),
    ("trl", "trainer/base_config.py", ("_BaseConfig",)),
    ("trl", "trainer/grpo_config.py", ("GRPOConfig",)),
    ("trl", "trainer/model_config.py", ("ModelConfig",)),
    ("composer_hub", "train/config.py", ("ComposerConfig",)),
    (
        "composer_hub",
        "train/run/options.py",
        ("SourceOptions", "EvalOptions", "PublishingOptions", "LaunchOptions"),
    ),
)
_BOOLEANS = {
    word: value
    for value, words in ((True, "yes true t y 1"), (False, "no false f n 0"))
    for word in words.split()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Option:
    """An option as its class declares it."""

    kind: str  # bool, int, float or text
    default: Any
    takes_list: bool = False


def check_words(words: Sequence[str]) -> None:
    """Refuse a command line with all its mistakes in one message."""
    if "--help" in words or "-h" in words:
        return
    if found := list(dict.fromkeys(mistakes(words))):
        one = "" if len(found) == 1 else f"{len(found)} options cannot work:\n- "
        raise exits.UsageError(one + "\n- ".join(found))


def mistakes(words: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each mistake of a command line and of the config file that it names."""
    options = known_options()
    values = {name: option.default for name, option in options.items()}
    words = with_config_files(words)
    for place, name, value in (*_of_file(words), *_of_words(words, options)):
        option = options.get(name)
        if option is None:
            yield f"{place}{'There' if not place else 'there'} is no option {name}{nearest(name, options)}."
            continue
        try:
            values[name] = _read(option, value)
        except ValueError:
            wanted = {"bool": "true or false", "int": "a whole number", "float": "a number"}[option.kind]
            yield f"{place}{name} is {wanted}, not {value!r}."
    if values["environment"] == "coding" and values["tasks"]:
        values |= {"environment": f"coding:{values['tasks']}", "tasks": None}
    if not values["model_name_or_path"]:
        yield "There is no model. Name --model_name_or_path owner/name@revision, a folder, or small."
    if not values["use_cpu"] and values["bf16"] is not False and not values["fp16"] and has_no_gpu():
        yield "No GPU was found, and bf16 needs one. On a CPU add --use_cpu true --bf16 false."
    yield from problems(values)
    yield from missing_packages(values)


def known_options() -> dict[str, Option]:
    """Return every option of a run with its kind and default."""
    found: dict[str, Option] = {}
    for package, file, names in _SOURCES:
        tree = ast.parse((_folder_of(package) / file).read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in names:
                found |= dict(_options_of(node))
    return found


def _folder_of(package: str) -> Path:
    extras.need("Training", "train", package)
    spec = importlib.util.find_spec(package)
    assert spec is not None
    return Path(next(iter(spec.submodule_search_locations or ())))


def _options_of(node: ast.ClassDef) -> Iterator[tuple[str, Option]]:
    for line in node.body:
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        words = re.findall(r"\w+", ast.unparse(line.annotation))
        if {"ClassVar", "InitVar"} & set(words):
            continue
        text = {"str", "dict", "list", "Literal", "Any"} & set(words)
        kinds = [kind for kind in ("float", "int", "bool") if kind in words]
        yield line.target.id, Option(kinds[0] if kinds and not text else "text", _default(line.value), "list" in words)


def _default(value: ast.expr | None) -> Any:
    """Return the default of a field if it is a literal; anything else counts as not set."""
    if isinstance(value, ast.Call):
        named = {keyword.arg: keyword.value for keyword in value.keywords}
        value = named.get("default") or (value.args[0] if value.args else None)
    try:
        return None if value is None else ast.literal_eval(value)
    except ValueError:
        return None


def _of_file(words: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    path = next((words[at + 1] for at, word in enumerate(words[:-1]) if word == "--config"), None)
    path = path or next((word.partition("=")[2] for word in words if word.startswith("--config=")), None)
    if path is None:
        return
    for name, value in read_config(Path(path)).items():
        if name != "env":
            yield f"{path}: ", str(name), value


def _of_words(words: Sequence[str], options: Mapping[str, Option]) -> Iterator[tuple[str, str, Any]]:
    """Yield the options of a command line as argparse reads them: --name value, --name=value, --no_name, prefixes."""
    position = 0
    while position < len(words):
        word, position = words[position], position + 1
        if not word.startswith("--"):
            continue
        shown, has_value, value = word[2:].partition("=")
        name = _full_name(shown.replace("-", "_"), options)
        start = position
        while position < len(words) and not words[position].startswith("--"):
            position += 1
        given = [value] if has_value else list(words[start:position])
        if name == "config":
            continue
        bare = name.removeprefix("no_")
        if name not in options and bare in options and options[bare].kind == "bool":
            yield "", bare, False
        elif name not in options:
            yield "", f"--{shown}", None
        elif options[name].takes_list:
            yield "", name, given
        else:
            yield "", name, given[0] if given else options[name].kind == "bool"


def _full_name(name: str, options: Mapping[str, Option]) -> str:
    fitting = [option for option in options if option.startswith(name)]
    return fitting[0] if len(fitting) == 1 and name not in options else name


def _read(option: Option, value: Any) -> Any:
    """Return a value of the command line or a file as its option's kind."""
    if option.kind == "text" or value is None:
        return value
    if option.kind == "bool":
        return _boolean(value)
    if isinstance(value, bool):
        raise ValueError(value)
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    if option.kind == "int" and number != int(number):
        raise ValueError(value)
    return int(value) if option.kind == "int" and not isinstance(value, float) else number


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() not in _BOOLEANS:
        raise ValueError(value)
    return _BOOLEANS[str(value).lower()]


def has_no_gpu() -> bool:
    """Say whether this machine surely has no accelerator; if in doubt, torch decides."""
    if metadata.version("torch").endswith("+cpu"):
        return True
    files = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dri", "/dev/dxg", "/dev/davinci0")
    return sys.platform == "linux" and not any(map(os.path.exists, files))
