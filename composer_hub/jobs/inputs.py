"""What a training command line says, and the local files it needs: they travel to the run's bucket.

In: the words that `composer_hub.train` would get. Out: the words that it gets in the job, and the files to upload.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from composer_hub import exits
from composer_hub.hub import HubDestination, check_repo, check_visibility, parse_ref
from composer_hub.jobs.client import MOUNT

OF_THE_JOB = ("output_dir", "resume", "max_minutes", "to", "usd_per_hour")
"""Options that the launcher or the job itself gives."""
_TARGETS = (("repo", "model"), ("rollouts_repo", "dataset"), ("checkpoints_repo", "model"))
"""Options that name what a run publishes; the model first."""
_TASKS = ("tasks", "eval_tasks")
MAX_CODE_BYTES = 50_000_000
_PUBLIC_ADVICE = (
    "add --public true if everyone may have the result, or make the repository private first. No job was started."
)


@dataclass(frozen=True)
class Request:
    """A training command as a job gets it."""

    words: list[str]
    files: dict[str, bytes] = field(default_factory=dict)  # path in the bucket -> content
    code: str = ""  # folder in the bucket that Python imports from
    told: Mapping[str, Any] = field(default_factory=dict)  # every option that was given, by line or file

    @property
    def repo(self) -> str:
        return str(self.told["repo"])

    @property
    def targets(self) -> list[tuple[str, str]]:
        """Return (repository, its type) of everything the run publishes."""
        named = ((self.told.get(option), kind) for option, kind in _TARGETS)
        return [(str(repo), kind) for repo, kind in named if repo]

    @property
    def is_public(self) -> bool:
        return str(self.told.get("public", "")).lower() in ("true", "1", "yes")


def read_request(words: Sequence[str], code: Sequence[Path] = ()) -> Request:
    """Read a training command line and take along the files it names."""
    line = options_of(words)
    for name in OF_THE_JOB:
        if name in line:
            raise exits.UsageError(f"--{name} is set by the job itself: leave it out.")
    told = _config(line.get("config")) | line
    if not told.get("repo"):
        raise exits.UsageError(
            "A job's disk goes away with it: name --repo owner/name, where the model is published at the end."
        )
    check_repo(str(told["repo"]))
    _check_model(told)
    files: dict[str, bytes] = {}
    fresh = [_shipped(word, files) for word in words]
    for option in _TASKS:
        tasks = told.get(option)
        if option not in line and isinstance(tasks, str) and Path(tasks).is_file():
            fresh += [f"--{option}", _shipped(tasks, files)]
    folder = _add_code(code, files)
    return Request(fresh, files, folder, told)


def options_of(words: Sequence[str]) -> dict[str, Any]:
    """Return `--name value` and `--name=value` by name; an option without a value is True."""
    found: dict[str, Any] = {}
    for at, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, sign, value = word[2:].partition("=")
        following = words[at + 1] if at + 1 < len(words) else "--"
        found[name] = value if sign else (True if following.startswith("--") else following)
    return found


def _config(path: Any) -> dict[str, Any]:
    if path is None:
        return {}
    if not isinstance(path, str) or not Path(path).is_file():
        raise exits.UsageError(f"There is no config file {path}. See configs/ for presets.")
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise exits.UsageError(f"{path} is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise exits.UsageError(f"{path} must hold options, one `name: value` a line.")
    return values


def _check_model(told: Mapping[str, Any]) -> None:
    name = told.get("model_name_or_path")
    if isinstance(name, str) and Path(name).expanduser().is_dir():
        raise exits.UsageError(
            f"The model {name} is a folder of this machine, which a job does not see: publish it first "
            "(`hf upload owner/name FOLDER`), and name it as owner/name@revision."
        )


def _shipped(word: str, files: dict[str, bytes]) -> str:
    """Replace the name of a local file by where the job finds it."""
    head, sign, value = word.partition("=")
    name = value if sign and head.startswith("--") else word
    if not name or not Path(name).is_file():
        return word
    content = Path(name).read_bytes()
    path = f"inputs/{digest(content)}/{Path(name).name}"
    files[path] = content
    return f"{head}={MOUNT}/{path}" if name is not word else f"{MOUNT}/{path}"


def _add_code(paths: Sequence[Path], files: dict[str, bytes]) -> str:
    """Take along modules and packages; return the folder in the bucket they are imported from."""
    found: dict[str, bytes] = {}
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        for one in inside:
            name = one.relative_to(path.parent)
            if one.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in name.parts):
                found[name.as_posix()] = one.read_bytes()
    size = sum(map(len, found.values()))
    if size > MAX_CODE_BYTES:
        raise exits.UsageError(
            f"--with takes along {size / 1e6:.0f} MB, more than code: name the package itself, publish its data."
        )
    if not found:
        return ""
    folder = f"code/{digest(b''.join(name.encode() + content for name, content in sorted(found.items())))}"
    files.update({f"{folder}/{name}": content for name, content in found.items()})
    return folder


def digest(content: bytes) -> str:
    """Return a short name for some bytes."""
    return hashlib.sha256(content).hexdigest()[:12]


# ---------------------------------------------------------------------------------------------------------- preflight


def check_inputs(where: HubDestination, told: Mapping[str, Any]) -> None:
    """Make sure that what the run reads is there, with the rights that the job will have."""
    model = told.get("model_name_or_path")
    if isinstance(model, str) and model != "small":
        revision = told.get("model_revision")
        _need(where, "model", f"{model}@{revision}" if revision and "@" not in model else model, "model")
    for option, weight in (("pairs", "beta_replay"), ("traces", "alpha_sdpo")):
        if told.get(option) and float(told.get(weight) or 0):
            _need(where, f"set of {option}", str(told[option]), "dataset")
    for option in _TASKS:
        tasks = told.get(option)
        if isinstance(tasks, str) and ":" not in tasks and not tasks.endswith(".jsonl"):
            _need(where, "set of tasks", tasks, "dataset")


def _need(where: HubDestination, what: str, name: str, repo_type: str) -> None:
    ref = parse_ref(name)
    if where.resolve(ref.repo, ref.revision, repo_type) is None:
        raise exits.UsageError(
            f"There is no {what} {ref} at {where.address} that the job's token may read. Check the name and revision."
        )


def check_targets(where: HubDestination, request: Request, *, is_made: bool) -> list[str]:
    """Make sure the job's token may publish the results; with `is_made`, repositories that are missing are made.

    Returns those that are not there yet.
    """
    missing = []
    for repo, repo_type in request.targets:
        is_private = where.is_private(repo, repo_type)
        if is_private is None and not is_made:
            missing.append(repo)
            continue
        where.prepare(repo, private=not request.is_public, repo_type=repo_type)
        check_visibility(where, repo, public=request.is_public, repo_type=repo_type, advice=_PUBLIC_ADVICE)
    return missing
