"""The interface of a programming language for task making: find, edit, run, read results.

`languages.LANGUAGES` lists the implementations. Everything else in this folder is the same for all of them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from composer_hub import exits
from composer_hub.tasks.code import Splice
from composer_hub.tasks.metadata import Metadata, is_copyleft


class PackageRefused(exits.ComposerError, ValueError):
    """A package that gives no tasks; `reason` is counted.

    unreadable: a file of it cannot be read
    not_found, not_downloaded: the source is not a file, a folder or a name that pip downloads
    broken_archive, too_large: it cannot be read as an sdist or wheel, or holds too many files or bytes
    no_tests, no_sources, no_python: nothing to run, to change, or to read
    no_manifest, monorepo: `package.json` is not an object, or holds several packages: name the folder of one
    no_runner: the tests of a JavaScript package run with mocha, ava or another program that is not known
    old_node: the tests are TypeScript, and this node runs JavaScript only: install 22.6 or later
    syntax: the code needs a newer Python than the one that runs this command
    shadows_stdlib: a module has the name of one of Python's own
    needs_compilation: no test passes, and there is code to compile
    sandbox: no sandbox works here, or the tests lack a permission that `landlock` does not give: install
        bubblewrap, or name `--sandbox landlock`
    dependencies: pip cannot install a requirement from wheels, or npm one from its registry; or node is not on
        PATH
    no_test_passes: the tests need network, services or files that are not there
    tests_hang, tests_kill, tests_do_not_run: no test file ends with a report: `--without 'tests/test_net*'`
        leaves those that wait out
    installed_twice: pytest or a requirement brings a copy of the package, such as `iniconfig` or `pluggy`
    no_history, no_commit: git has no history to replay, or no commit of it gives a task
    all_flaky: no test ends the same way in three runs
    no_task: no candidate passed the gates
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Routine(Protocol):
    """A function or method, as generators see it."""

    @property
    def name(self) -> str: ...
    @property
    def symbol(self) -> str: ...  # module:qualified name
    @property
    def path(self) -> str: ...
    @property
    def first_line(self) -> int: ...
    @property
    def body_lines(self) -> tuple[int, int]: ...
    @property
    def called_names(self) -> frozenset[str]: ...
    @property
    def is_cached(self) -> bool: ...  # a test that needs it may run no line of it
    @property
    def size(self) -> int: ...  # statements in its body
    @property
    def digest(self) -> str: ...  # of what it does, without words about it

    def __hash__(self) -> int: ...

    def can_be_emptied(self) -> bool:
        """Return whether the body has enough code to be worth writing again, and whether a call runs it."""


@dataclass(frozen=True)
class Arm:
    """One arm of an `if`: its condition, its lines, and the splice that takes it away."""

    condition: str
    line: int  # of the `if`
    lines: tuple[int, int]
    without: Splice


class Language(Protocol):
    """A programming language."""

    name: str  # `language` of its tasks
    label: str  # of a package, in statements
    fence: str  # of code, in statements
    kinds: tuple[str, ...]  # of tasks that can be made
    has_oracles: bool  # whether calls can be recorded and made again
    stub: str  # a body that is not written yet
    answer: str  # a body that gives the trivial answers of `deletion.VARIANTS`
    runner: Path  # the program that runs jobs in the sandbox, below `inside`
    code: tuple[str, ...]  # how names of source files end
    defines: re.Pattern[bytes]  # finds the names that a file defines

    def __hash__(self) -> int: ...

    # ---- find

    def claims(self, tree: Path) -> bool:
        """Return whether a tree holds a package of this language."""

    def metadata(self, folder: Path) -> Metadata:
        """Return the metadata of a package."""

    def describe(self, tree: Path, metadata: Metadata, source: str, skipped: Counter[str]) -> Package:
        """Return the package in a clean tree; `PackageRefused` if no task can be made from it."""

    def read(self, path: str, text: str, python_path: Sequence[str]) -> Any:
        """Return a parsed file with its `path`, `module` and `text`."""

    def functions(self, source: Any) -> Iterator[Any]:
        """Yield the functions and methods of a parsed file, each a `Routine`."""

    def is_test(self, path: str) -> bool:
        """Return whether a file holds tests, by its place and name."""

    def meaning(self, path: str, text: str) -> str:
        """Return code without comments and documentation; if it is not valid code, the text."""

    def names(self, source: Any) -> set[str]:
        """Return the classes, variables and types at the top of a parsed file."""

    # ---- edit

    def parses(self, path: str, text: str) -> bool:
        """Return whether the text of a file is valid code; other files are valid."""

    def emptied(self, function: Any, body: str) -> Splice:
        """Return the splice that replaces a function's body, but not its documentation."""

    def arms(self, function: Any) -> Iterator[Arm]:
        """Yield the arms of a function's conditions that can be taken away."""

    def mutants(self, function: Any) -> Iterator[tuple[str, int, Splice]]:
        """Yield small changes of a function's body as kind, line and splice."""

    # ---- run, and read results

    def environment(self, package: Package, requirements: Sequence[str]) -> Path:
        """Return the folder of what the tests need, installed; `VenvError` if it cannot be."""

    def pinned(self, environment: Path) -> tuple[str, ...]:
        """Return name and version of everything in an environment."""

    def settings(self, package: Package, wants_lines: bool) -> dict[str, Any]:
        """Return the runner's settings for a package, and how it finds the lines that tests run."""

    # ---- describe

    def head(self, source: Any, name: str) -> str | None:
        """Return the signature and documentation of a definition."""

    def known(self, model: Any, symbols: Sequence[str], source: Any, name: str, failing: Sequence[str]) -> str:
        """Describe what else is known of a definition's behavior, from its body, users and failing tests."""

    def function_of(self, id: str) -> str:
        """Return the test function that a test id is a case of."""

    def test_source(self, source: Any, id: str) -> tuple[str, str] | None:
        """Return the name and the text of the test function that a test id means."""

    def readable(self, environment: Path) -> list[Path]:
        """Return the folders of code that an agent can read besides the tree."""

    def digests(self, path: str, data: bytes) -> Mapping[str, set[str]]:
        """Return function name -> digests of a file that may not parse."""


@dataclass(frozen=True)
class Package:
    """A clean tree on this machine, with what is known about the package."""

    folder: Path
    metadata: Metadata
    digest: str  # of its bundle
    python_path: tuple[str, ...]
    modules: tuple[str, ...]  # top-level import names
    sources: tuple[str, ...]  # files of the package
    tests: tuple[str, ...]  # test files
    skipped: Counter[str]  # files by reason
    language: Language
    editable: tuple[str, ...]  # patterns of the package's own code

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def copyleft(self) -> bool:
        return is_copyleft(self.metadata.license)

    def text(self, path: str) -> str:
        """Return the text of a file as it is, with its line ends."""
        return (self.folder / path).read_bytes().decode("utf-8")


# --------------------------------------------------------------------------------------------------------------- names


def shown_symbol(symbol: str) -> str:
    """Return a symbol as readers see it."""
    module, _, name = symbol.partition(":")
    return f"`{name}` of `{module}`"


def file_of(id: str) -> str:
    """Return the file of a test."""
    return id.split("::")[0]


def files_of(ids: Iterable[str]) -> tuple[str, ...]:
    """Return the files of some tests, each once and in order."""
    return tuple(sorted(set(map(file_of, ids))))


# ------------------------------------------------------------------------------------------------------------- bundles


def pack(tree: Path) -> bytes:
    """Return a tar.gz of the files of a tree, the same bytes on every machine."""
    paths = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    return packed({path.relative_to(tree).as_posix(): path.read_bytes() for path in paths})


def packed(files: Mapping[str, bytes]) -> bytes:
    """Return a tar.gz of some files, in their order."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, filename="") as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def bundle_digest(data: bytes) -> str:
    """Return the digest of a bundle's content, whatever compressed it."""
    return hashlib.sha256(gzip.decompress(data)).hexdigest()
