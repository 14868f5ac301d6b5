"""An environment for coding tasks: an agent edits a package in a sandbox, and hidden checks score what it left.

Errors are texts, in the words that the error finder knows. Each episode has a work tree and, for root, a user of its
own. What the agent leaves is judged by `verifier`, in a fresh tree; equal submissions are judged once, and the first
question for a reward starts the verification of every waiting episode in a small pool.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from composer_hub.environments import monitor, node_tests, trees
from composer_hub.environments.guard import Broken, OwnEnvironment
from composer_hub.environments.marks import python_env
from composer_hub.environments.node import manifest_of, node_version
from composer_hub.environments.process import shortened
from composer_hub.environments.sandbox import Completed, Limits, Sandbox, SandboxError, open_sandbox
from composer_hub.environments.shelf import TaskShelf
from composer_hub.environments.verifier import NUM_WORKERS, Verdict, submission, verify
from composer_hub.records import SourceEdit, Task, stable_id

_LONGEST = 100_000  # bytes of one argument; the kernel takes 128 KiB


@dataclass(frozen=True)
class CodingOptions:
    """The sandbox and limits of one episode."""

    sandbox: str = "auto"
    seconds_per_call: float = 20.0
    seconds_per_episode: float = 180.0  # of tools
    tree_mb: int = 256
    output_chars: int = 8000
    verify_seconds: float = 60.0


@dataclass(frozen=True)
class EpisodeCall:
    """One tool call of an episode, with what it changed."""

    tool: str
    arguments: Mapping[str, Any]
    result: str
    exit_code: int | None  # of the commands among the tools
    changes: tuple[SourceEdit, ...]  # between the start of the episode and the state after the call
    seconds: float = 0.0  # of its command


def call_id(tool: str, result: str) -> str:
    """Return a short digest by which a call of an episode is found in the rollout's transcript."""
    return stable_id(tool, result)[:12]


class Scorer:
    """Verifies submissions in a small pool, equal ones once."""

    def __init__(self, shelf: TaskShelf, sandbox: Callable[[], Sandbox], seconds: float, workers: int = NUM_WORKERS):
        self._shelf, self._sandbox, self._seconds = shelf, sandbox, seconds
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="verify")
        self._known: dict[tuple[str, str], Future[Verdict]] = {}
        self._lock = threading.Lock()
        self.waiting: weakref.WeakSet[CodingEnvironment] = weakref.WeakSet()

    def verdict(self, task: Task, files: trees.Files) -> Future[Verdict]:
        key = (task.task_id, trees.digest(files))
        with self._lock:
            if key not in self._known:
                if len(self._known) > 4096:
                    self._known.clear()
                self._known[key] = self._pool.submit(self._verify, task, files, key)
            return self._known[key]

    def _verify(self, task: Task, files: trees.Files, key: tuple[str, str]) -> Verdict:
        shelf = self._shelf
        try:
            return verify(
                task,
                files,
                shelf.bundles[task.bundle_digest],
                self._sandbox(),
                venv=shelf.venvs.get(task.bundle_digest),
                oracle=shelf.oracles.get(task.task_id),
                seconds=self._seconds,
            )
        except Exception:
            with self._lock:
                self._known.pop(key, None)  # not known, so the next equal submission is verified again
            raise


def coding_factory(shelf: TaskShelf, options: CodingOptions | None = None) -> Callable[[], CodingEnvironment]:
    """Return a factory of environments that share one scorer."""
    chosen = options or CodingOptions()
    local = threading.local()

    def own_sandbox() -> Sandbox:
        if not hasattr(local, "sandbox"):
            local.sandbox = open_sandbox(chosen.sandbox)
        return local.sandbox

    open_sandbox(chosen.sandbox)  # refuse before the first episode
    scorer = Scorer(shelf, own_sandbox, chosen.verify_seconds)
    return lambda: CodingEnvironment(shelf, scorer, chosen)


class CodingEnvironment(OwnEnvironment):
    """Edit a package in a sandbox until its hidden tests pass."""

    def __init__(self, shelf: TaskShelf, scorer: Scorer, options: CodingOptions) -> None:
        self._shelf, self._scorer, self._options = shelf, scorer, options
        self._sandbox = open_sandbox(options.sandbox)
        self._home: Path | None = None
        self._task: Task | None = None
        self._calls: list[EpisodeCall] = []
        self._start: trees.Files = {}
        self._before: trees.Files = {}
        self._known: trees.Known = {}
        self._left = self._seconds = 0.0
        self._verdict: Verdict | None = None
        self._spoiled = ""  # why the episode is over with a reward of 0
        self._clean: Any = weakref.finalize(self, lambda: None)

    def reset(self, task_id: str = "", **row: Any) -> str | None:
        self._task = self._shelf.task(task_id)
        self._clean()
        self._home = Path(tempfile.mkdtemp(prefix="composer-episode-"))
        self._clean = weakref.finalize(self, trees.remove, self._home)
        os.chmod(self._home, 0o711)  # without mounts, the sandbox's user passes through
        self._start = self._shelf.start(self._task)
        trees.write_files(self._root, self._start)
        self._known = {}
        # Some files are never read back, such as large ones: no call has deleted them.
        self._before = trees.read_files(self._root, self._known)
        self._calls, self._left, self._verdict = [], self._options.seconds_per_episode, None
        self._spoiled = ""
        self._scorer.waiting.add(self)
        return None

    def get_reward(self) -> float:
        """Return 1.0 if the hidden checks pass on what the agent left, and 0.0 otherwise."""
        for other in list(self._scorer.waiting):
            other._submit()
        return self._judged().reward

    def run(self, command: str) -> str:
        """Run a shell command in the package's folder.

        Args:
            command: The command, for bash.
        """
        return self._called("run", {"command": command}, lambda: self._execute(command))

    def read_file(self, path: str, start: int = 1, lines: int = 400) -> str:
        """Read a text file.

        Args:
            path: The file, relative to the package's folder.
            start: The first line to show.
            lines: The number of lines to show.
        """
        return self._called("read_file", {"path": path}, lambda: self._read(path, start, lines))

    def write_file(self, path: str, text: str) -> str:
        """Write a text file, replacing it if it exists.

        Args:
            path: The file, relative to the package's folder.
            text: Its whole content.
        """
        return self._called("write_file", {"path": path, "text": text}, lambda: self._write(path, text))

    def replace(self, path: str, old: str, new: str) -> str:
        """Replace a text that occurs once in a file.

        Args:
            path: The file, relative to the package's folder.
            old: The text to replace, exactly as in the file.
            new: The text to put there.
        """
        arguments = {"path": path, "old": old, "new": new}
        return self._called("replace", arguments, lambda: self._replaced(path, old, new))

    def search(self, pattern: str, path: str = ".") -> str:
        """Find lines that match a regular expression.

        Args:
            pattern: An extended regular expression.
            path: A file or folder to search.
        """
        return self._called("search", {"pattern": pattern, "path": path}, lambda: self._found(pattern, path))

    def run_tests(self, selection: str = "") -> str:
        """Run the package's tests.

        Args:
            selection: A test file or test id; all of the task's tests if empty.
        """
        return self._called("run_tests", {"selection": selection}, lambda: self._tested(selection))

    # ------------------------------------------------------------------------------------------------------- the tools

    def _execute(self, command: str | list[str]) -> tuple[str, int]:
        assert self._task is not None
        env = python_env(self._sandbox.inside(self._root), self._task.python_path)
        env |= node_tests.VARIABLES if self._task.language == "javascript" else {}
        done = self._ran(command, env)
        if done.timed_out:
            return f"Command timed out after {done.seconds:.0f} s.\n{done.output}", done.exit_code
        if done.exceeded:
            used = f"The command used too much {done.exceeded} and was ended."
            return f"Exit code {done.exit_code}\n{used}\n{done.output}", done.exit_code
        if done.flooded:
            return (
                f"Exit code {done.exit_code}\nThe command printed too much and was ended.\n{done.output}",
                done.exit_code,
            )
        output = done.output.strip("\n") or "(no output)"
        return (output if done.exit_code == 0 else f"Exit code {done.exit_code}\n{output}"), done.exit_code

    def _ran(self, command: str | list[str], env: Mapping[str, str]) -> Completed:
        assert self._task is not None
        if max(len(os.fsencode(one)) for one in ([command] if isinstance(command, str) else command)) > _LONGEST:
            return Completed(126, "bash: Argument list too long")
        seconds = min(self._options.seconds_per_call, max(self._left, 0.1))
        try:
            done = self._sandbox.run(
                command,
                root=self._root,
                venv=self._shelf.venvs.get(self._task.bundle_digest),
                env=env,
                # node counts a dozen threads for each of its processes.
                limits=Limits(
                    seconds=seconds,
                    processes=64 if self._task.language == "python" else 256,
                    output_chars=self._options.output_chars,
                    tree_mb=2 * self._options.tree_mb,
                ),
            )
        except SandboxError as error:
            if self._works_elsewhere():
                raise trees.TreeError(f"The work tree cannot be used any more ({error}).") from error
            raise Broken(str(error)) from error
        self._seconds = done.seconds
        if trees.size_of(self._root) > self._options.tree_mb << 20:
            raise trees.TreeError(f"The work tree holds more than {self._options.tree_mb} MB.")
        return done

    def _works_elsewhere(self) -> bool:
        """Return whether the sandbox runs a command in a new tree: if so, the agent has broken its own."""
        with trees.scratch("composer-probe-") as folder:
            (folder / "tree").mkdir()
            try:
                return self._sandbox.run(["true"], root=folder / "tree").exit_code == 0
            except SandboxError:
                return False

    def _relative(self, path: str) -> str:
        """Return a path as the tree names it; programs print those of the sandbox."""
        return path.removeprefix(f"{self._sandbox.inside(self._root)}/")

    def _read(self, path: str, start: int, lines: int) -> tuple[str, None]:
        text = trees.read_file(self._root, self._relative(path)).decode("utf-8", "replace").splitlines(keepends=True)
        chosen = text[max(start, 1) - 1 : max(start, 1) - 1 + max(lines, 1)]
        if not chosen:
            return (f"Error: {path} has {len(text)} lines." if text else "(empty file)"), None
        return shortened("".join(chosen), self._options.output_chars), None

    def _write(self, path: str, text: str) -> tuple[str, None]:
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > trees.MAX_FILE:
            return f"Error: File content ({len(data)} bytes) exceeds maximum of {trees.MAX_FILE} bytes.", None
        trees.write_file(self._root, self._relative(path), data)
        return f"Wrote {path}.", None

    def _replaced(self, path: str, old: str, new: str) -> tuple[str, None]:
        text = trees.read_file(self._root, self._relative(path)).decode("utf-8")
        count = text.count(old) if old else 0
        if old == new:
            return "Error: No changes to make: old and new are the same.", None
        if count == 0:
            return f"Error: Text to replace not found in file {path}. Read it again and copy the text exactly.", None
        if count > 1:
            return f"Error: Found {count} matches of the text to replace in {path}. Add lines around it.", None
        self._write(path, text.replace(old, new))
        return f"Replaced the text in {path}.", None

    def _found(self, pattern: str, path: str) -> tuple[str, int]:
        argv = ["grep", "-rnIE", "--exclude-dir=.git", "--exclude-dir=__pycache__", "-e", pattern, "--", path]
        text, code = self._execute(argv)
        return ("No matches found." if code == 1 else text), code

    def _tested(self, selection: str) -> tuple[str, int]:
        assert self._task is not None
        wanted = (*self._task.fail_to_pass, *self._task.pass_to_pass)
        files = {node.partition("::")[0] for node in wanted}  # the agent does not have those of hidden tests
        chosen = [selection] if selection else sorted(files & self._start.keys())
        if self._task.language == "javascript":
            manifest = manifest_of(self._start["package.json"])
            paths = [one.partition("::")[0] for one in chosen]
            return self._execute(node_tests.command(manifest, paths, version=node_version(), seconds=60, report=""))
        python = "python" if self._shelf.venvs.get(self._task.bundle_digest) else "python3"
        command = [python, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-o", "addopts="]
        return self._execute([*command, "--", *chosen])

    # ----------------------------------------------------------------------------------------------------- the episode

    @property
    def _root(self) -> Path:
        if self._home is None:
            raise RuntimeError("The environment was never reset.")
        return self._home / "tree"

    def _called(self, tool: str, arguments: Mapping[str, Any], do: Callable[[], tuple[str, int | None]]) -> str:
        if self._spoiled:
            return f"Error: {self._spoiled}"
        if self._left <= 0:
            return f"Command timed out: the {self._options.seconds_per_episode:g} s of this episode are used up."
        code, self._seconds = None, 0.0
        try:
            result, code = do()
        except FileNotFoundError:
            result = f"Error: File does not exist: {arguments.get('path')}"
        except IsADirectoryError:
            result = f"Error: {arguments.get('path')} is a directory."
        except UnicodeDecodeError:
            result = f"Error: Cannot read binary file {arguments.get('path')}."
        except trees.PathError as error:
            result = f"Error: Invalid path: {error}"
        except trees.TreeError as error:
            result = self._spoil(error)
        except OSError as error:
            result = f"Error: Permission denied: {arguments.get('path')} ({error.strerror}). Links are not followed."
        self._left -= self._seconds
        self._verdict = None
        changes = self._calls[-1].changes if self._calls else ()
        if tool not in ("read_file", "search") and not self._spoiled:
            try:
                changes = trees.edits_between(self._before, trees.read_files(self._root, self._known))
            except trees.TreeError as error:
                result = self._spoil(error)
        self._calls.append(EpisodeCall(tool, arguments, result, code, changes, self._seconds))
        return result

    def _spoil(self, error: trees.TreeError) -> str:
        """End the episode with a reward of 0: it is not lost, because the agent has done this itself."""
        self._spoiled = f"{error} The episode is over."
        return f"Error: {self._spoiled}"

    def _submitted(self) -> trees.Files:
        assert self._task is not None
        return submission(self._task, trees.read_files(self._root, self._known))

    def _submit(self) -> Future[Verdict]:
        """Start the verification of what is there now."""
        assert self._task is not None
        self._scorer.waiting.discard(self)
        try:
            if not self._spoiled:
                return self._scorer.verdict(self._task, self._submitted())
        except trees.TreeError as error:
            self._spoil(error)
        done: Future[Verdict] = Future()
        done.set_result(Verdict(0.0, failed=self._task.fail_to_pass, reason=self._spoiled))
        return done

    def _judged(self) -> Verdict:
        if self._verdict is None:
            self._verdict = self._submit().result()
        return self._verdict

    def _keep(self, results: Iterable[tuple[str, str]]) -> None:
        kept = 0
        for tool, result in results:
            # Unknown tools and wrong arguments are answered by the trainer and have never come here.
            kept += kept < len(self._calls) and (tool, result) == (self._calls[kept].tool, self._calls[kept].result)
        if kept < len(self._calls):
            del self._calls[kept:]
            self._restore(self._calls[-1].changes if self._calls else ())

    def _restore(self, changes: Sequence[SourceEdit]) -> None:
        """Put the tree into the state that some changes to the start describe."""
        self._spoiled = ""
        trees.remove(self._root)
        trees.write_files(self._root, trees.edited(self._start, changes))
        self._verdict = None

    def _notes(self) -> dict[str, float]:
        assert self._task is not None
        verdict = self._judged()
        return {
            "rollout/oracle_share": float(self._task.task_id in self._shelf.oracles),
            "rollout/visible_gap": verdict.visible - verdict.reward,
            "rollout/hack_share": float(bool(self._findings())),
        }

    def _facts(self) -> dict[str, Any]:
        assert self._task is not None
        verdict = self._judged()
        states, before = [], None
        for number, call in enumerate(self._calls):
            if call.changes != before:
                states.append({"call": number, "changes": [asdict(edit) for edit in call.changes]})
                before = call.changes
        return {
            "task_id": self._task.task_id,
            "reward": verdict.reward,
            "visible_reward": verdict.visible,
            "hack": [asdict(finding) for finding in self._findings()],
            "states": states,  # after these calls, as changes to the start
            "calls": [call_id(call.tool, call.result) for call in self._calls],
        }

    def _findings(self) -> list[monitor.HackSign]:
        """Return the findings of this episode's verification, with evidence."""
        return monitor.findings(self._judged())
