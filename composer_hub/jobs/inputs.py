"""The training command of a job, the local files that it needs, and the repositories that it writes.

In: the words of a training command on this machine. Out: its words inside the job, and the files to upload.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.hub import HubDestination, check_repo, check_visibility
from composer_hub.train.presets import options_of, read_config, with_config_files

MOUNT = "/composer"
"""The mount path of a run's bucket inside a job."""
_OF_THE_JOB = ("output_dir", "resume", "max_minutes", "to", "usd_per_hour")
_TARGETS = (("repo", "model"), ("rollouts_repo", "dataset"), ("checkpoints_repo", "model"))
"""Options that name the repositories of a run; the model first."""
_SOURCES = "pairs traces tasks eval_tasks".split()
"""Options that may name a local file, in the command or in its config."""
_PUBLIC_ADVICE = (
    "add --public true if everyone may have the result, or make the repository private first. No job was started."
)


@dataclass(frozen=True)
class TrainingRequest:
    """A training command as a job runs it."""

    words: list[str]
    files: dict[str, bytes]  # path in the bucket -> content
    code: str  # folder in the bucket that Python imports from
    options: Mapping[str, Any]  # from the command line and its config file

    @property
    def targets(self) -> list[tuple[str, str]]:
        """Return (repository, type) of everything that the run publishes; the model first."""
        return [(str(self.options[option]), kind) for option, kind in _TARGETS if self.options.get(option)]


def read_request(words: Sequence[str], code: Sequence[Path] = ()) -> TrainingRequest:
    """Read a training command line and the files that it names."""
    words = with_config_files(words)
    line = options_of(words)
    for name in _OF_THE_JOB:
        if name in line:
            raise exits.UsageError(f"--{name} is set by the job: leave it out.")
    options = _config(line.get("config")) | line
    if not options.get("repo"):
        raise exits.UsageError("A job's disk is deleted when it ends: name --repo owner/name for the finished model.")
    check_repo(str(options["repo"]))
    model = str(options.get("model_name_or_path", ""))
    if model and Path(model).expanduser().is_dir():
        raise exits.UsageError(
            f"The model {model} is a folder on this machine, which a job cannot read: publish it first "
            "(`hf upload owner/name FOLDER`) and name it as owner/name@revision."
        )
    files: dict[str, bytes] = {}
    sent = [_send(word, files) for word in words]
    for option in _SOURCES:
        if option not in line and _is_file(options.get(option)):
            sent += [f"--{option}", _send(options[option], files)]
    return TrainingRequest(sent, files, _send_code(code, files), options)


def _config(path: Any) -> dict[str, Any]:
    if path is None:
        return {}
    if not _is_file(path):
        raise exits.UsageError(f"--config {path}: name a preset or a file.")
    return read_config(Path(path))


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and Path(value).is_file()


def _send(word: str, files: dict[str, bytes]) -> str:
    """Replace the path of a local file by its path inside the job."""
    head, sign, value = word.partition("=")
    head, name = (f"{head}=", value) if sign and head.startswith("--") else ("", word)
    if not _is_file(name):
        return word
    content = Path(name).read_bytes()
    path = f"inputs/{content_digest(content)}/{Path(name).name}"
    files[path] = content
    return f"{head}{MOUNT}/{path}"


def _send_code(paths: Sequence[Path], files: dict[str, bytes]) -> str:
    """Add modules and packages to the files; return the folder in the bucket to import them from."""
    sources: dict[str, bytes] = {}
    for path in paths:
        for one in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = one.relative_to(path.parent)
            if one.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in name.parts):
                sources[name.as_posix()] = one.read_bytes()
    if not sources:
        return ""
    folder = f"code/{content_digest(b''.join(name.encode() + content for name, content in sorted(sources.items())))}"
    files.update({f"{folder}/{name}": content for name, content in sources.items()})
    return folder


def content_digest(content: bytes) -> str:
    """Return a short digest, used as a folder name."""
    return hashlib.sha256(content).hexdigest()[:12]


def prepare_targets(where: HubDestination, request: TrainingRequest) -> None:
    """Create the repositories of the results, and check that the token may publish there."""
    public = str(request.options.get("public", "")).lower() in ("true", "1", "yes")
    for repo, repo_type in request.targets:
        where.prepare(repo, private=not public, repo_type=repo_type)
        check_visibility(where, repo, public=public, repo_type=repo_type, advice=_PUBLIC_ADVICE)
