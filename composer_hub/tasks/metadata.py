"""Name, version, license and requirements of a package, from PKG-INFO, METADATA or pyproject.toml."""

from __future__ import annotations

import ast
import configparser
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

TEST_EXTRAS = {"test", "tests", "testing"}
# Named among a package's extras or groups, in its settings for tests, or imported by tests, these are installed.
TEST_TOOLS = {
    "hypothesis", "freezegun", "mock", "pretend", "parameterized", "time-machine", "attrs", "six", "pyyaml", "trio",
    "anyio", "pytest-asyncio", "pytest-mock", "pytest-subtests", "pytest-lazy-fixture", "pytest-timeout",
    "pytest-benchmark", "pytest-datadir", "pytest-freezer", "pytest-describe", "pytest-trio", "sybil",
}  # fmt: skip
_SETTINGS = ("tox.ini", "setup.cfg", "*requirements*.txt", "*/*test*.txt")
_TOOL_OF = {"yaml": "pyyaml", "attr": "attrs"}  # by the module, where its name differs
_COPYLEFT = re.compile(
    r"\b(A?GPL|LGPL|MPL|EUPL|CDDL|EPL|OSL|CC-BY-SA)|Affero|General Public|Mozilla Public", re.IGNORECASE
)
_TEXTS = (
    (r"GNU AFFERO", "agpl-3.0"), (r"GNU LESSER", "lgpl-3.0"), (r"GNU GENERAL PUBLIC", "gpl-3.0"),
    (r"Mozilla Public License", "mpl-2.0"), (r"Apache License", "apache-2.0"),
    (r"Permission is hereby granted, free of charge", "mit"),
    (r"Redistribution and use in source and binary forms[\s\S]{200,1800}(?:Neither|The name)", "bsd-3-clause"),
    (r"Redistribution and use in source and binary forms", "bsd-2-clause"),
    (r"Permission to use, copy, modify, and(?:/or)? distribute", "isc"), (r"CC0|unencumbered software", "cc0-1.0"),
)  # fmt: skip


@dataclass(frozen=True)
class Metadata:
    """The metadata of a package."""

    name: str
    version: str
    license: str = "unknown"
    requirements: tuple[str, ...] = ()  # to import it
    test_requirements: tuple[str, ...] = ()  # to run its tests, without pytest


def read_metadata(folder: Path) -> Metadata:
    """Read the metadata of a tree; a tree without any is named after its folder."""
    project = _pyproject(folder / "pyproject.toml")
    table = project.get("project", {}) if isinstance(project.get("project"), dict) else {}
    files = [*folder.glob("PKG-INFO"), *folder.glob("*.dist-info/METADATA"), *folder.glob("*.egg-info/PKG-INFO")]
    header = HeaderParser().parsestr(files[0].read_text(encoding="utf-8", errors="replace")) if files else None
    listed = header.get_all("Requires-Dist", []) if header else []
    optional: dict[str, list[str]] = {
        key: list(map(str, value)) for key, value in table.get("optional-dependencies", {}).items()
    }
    for key, value in project.get("dependency-groups", {}).items():
        optional[key] = [one for one in value if isinstance(one, str)]
    poetry = project.get("tool", {}).get("poetry", {})
    older = {
        **_setup_cfg(folder),
        **_setup_py(folder),
        **{key: poetry[key] for key in ("name", "version") if key in poetry},
    }
    required = [str(one) for one in table.get("dependencies", older.get("install_requires", []))]
    required += list(_of_poetry(poetry))
    for group, settings in poetry.get("group", {}).items():
        optional[group] = list(_of_poetry(settings))
    required = required or [one for one in listed if "extra ==" not in one]
    for one in listed:
        if found := re.search(r"extra == ['\"]([\w.-]+)['\"]", one):
            optional.setdefault(found[1], []).append(one.split(";")[0].strip())
    name, version = (  # in a header, upper and lower case are the same
        next((one[key] for one in (header or {}, table, older) if one.get(key)), "") for key in ("name", "version")
    )
    return Metadata(
        re.sub(r"[^\w.-]+", "-", str(name or folder.resolve().name)).strip("-") or "package",
        re.sub(r"[^\w.!+-]+", "", str(version or _assigned_version(folder))) or "0",
        license_of(folder, table, header),
        tuple(dict.fromkeys(required)),
        tuple(dict.fromkeys(_for_tests(folder, optional))),
    )


def _of_poetry(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the requirements of a table of Poetry without their versions; optional ones are left out."""
    for name, wanted in table.get("dependencies", {}).items():
        facts = wanted if isinstance(wanted, dict) else {}
        if name.lower() != "python" and not facts.get("optional"):
            yield f"{name}; {facts['markers']}" if "markers" in facts else name


def _setup_cfg(folder: Path) -> dict[str, Any]:
    """Return the name and the requirements that a `setup.cfg` states."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string((folder / "setup.cfg").read_text(encoding="utf-8"))
    except (OSError, ValueError, configparser.Error):
        return {}
    name, listed = parser.get("metadata", "name", fallback=""), parser.get("options", "install_requires", fallback="")
    version = parser.get("metadata", "version", fallback="")
    lines = (re.sub(r"(^|\s)#.*", "", one).strip() for one in listed.splitlines())
    required = [one for one in lines if one]
    return {
        key: value
        for key, value in (
            ("name", name),
            ("install_requires", required),
            ("version", "" if ":" in version else version),
        )
        if value
    }


def _setup_py(folder: Path) -> dict[str, Any]:
    """Return the name and the requirements that a `setup.py` writes as plain values; it is not run."""
    try:
        parsed = ast.parse((folder / "setup.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[str, Any] = {}
    calls = [one for one in ast.walk(parsed) if isinstance(one, ast.Call) and ast.unparse(one.func).endswith("setup")]
    for node in (keyword for one in calls for keyword in one.keywords):
        if node.arg in ("name", "version", "install_requires"):
            try:
                found.setdefault(node.arg, ast.literal_eval(node.value))
            except (ValueError, TypeError):
                continue
    wanted = {"name": str, "version": str, "install_requires": list}
    return {key: value for key, value in found.items() if isinstance(value, wanted[key])}


def _assigned_version(folder: Path) -> str:
    """Return the `__version__` that all modules of a tree that assign one agree on; else "0"."""
    found = set()
    for pattern in ("*.py", "*/*.py", "src/*/*.py"):
        for path in (one for one in folder.glob(pattern) if one.is_file()):
            text = path.read_text(encoding="utf-8", errors="replace")
            found |= set(
                re.findall(r"^__version__(?:: *\w+)? *= *['\"]([\w.!+-]*\d[\w.!+-]*)['\"]", text, re.MULTILINE)
            )
    return found.pop() if len(found) == 1 else "0"


def version_file(folder: Path) -> str:
    """Return the module with the version that a build would write from git's tags; empty if there is none."""
    tool = _pyproject(folder / "pyproject.toml").get("tool", {})
    scm = tool.get("setuptools_scm", {})
    hatch = tool.get("hatch", {}).get("build", {}).get("hooks", {}).get("vcs", {})
    named = scm.get("version_file") or scm.get("write_to") or hatch.get("version-file") or ""
    return named if isinstance(named, str) and named.endswith(".py") and not {"..", "/"} & {*Path(named).parts} else ""


def is_copyleft(license: str) -> bool:
    """Return whether a license asks for derived works under the same terms."""
    return bool(_COPYLEFT.search(license))


def _tools(folder: Path, optional: set[str]) -> set[str]:
    """Return the names of what tests need besides the extras for tests.

    These are known tools that the package names or tests import, and all else that is both named and imported.
    What is only imported may be a module of the tests, and a stranger may have published a package of that name.
    """
    named, imported = {*optional}, set[str]()
    for found, patterns, word in (
        (named, _SETTINGS, r"^[ \t]*(?:[\w-]+:[ \t]*)?([\w-]+)"),
        (imported, ("conftest.py", "test_*.py", "test*/**/*.py"), r"^[ \t]*(?:import|from)[ \t]+(\w+)"),
    ):
        for path in (one for pattern in patterns for one in folder.glob(pattern) if one.is_file()):
            text = path.read_text(encoding="utf-8", errors="replace")
            found |= set(map(_name_of, re.findall(word, text, re.MULTILINE)))
    imported -= set(map(_name_of, (*sys.stdlib_module_names, *_modules(folder))))
    imported = {_TOOL_OF.get(one, one) for one in imported}
    return ((named | imported) & TEST_TOOLS) | (named & imported)


def _modules(folder: Path) -> Iterable[str]:
    """Return the names that the tests of a tree can import from the tree, without a package before them."""
    return (one.stem for pattern in ("*", "src/*", "test*/**/*") for one in folder.glob(pattern))


def _for_tests(folder: Path, optional: Mapping[str, Iterable[str]]) -> list[str]:
    names = {_name_of(one) for listed in optional.values() for one in listed}
    tools = _tools(folder, names)
    found = [
        one
        for extra, listed in sorted(optional.items())
        for one in listed
        if extra.lower() in TEST_EXTRAS or _name_of(one) in tools
    ]
    found = [*sorted(tools - names), *found]
    return [one for one in found if _name_of(one) not in ("", "pytest", "coverage")]


def is_tool(requirement: str) -> bool:
    """Return whether a requirement is one of the small packages that tests of many packages need."""
    return _name_of(requirement) in TEST_TOOLS


def _name_of(requirement: str) -> str:
    """Return the name in a requirement, as modules and distributions can be compared."""
    return re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0].lower().replace("_", "-")


def license_of(folder: Path, table: Mapping[str, Any], header: Any) -> str:
    """Return the license by metadata, classifiers or the text of a file, in this order; else "unknown"."""
    named = table.get("license")
    named = named.get("text") if isinstance(named, dict) else named
    stated = [header["License-Expression"], header["License"]] if header is not None else []
    for one in (*stated, named):
        if one and len(str(one)) < 60 and "\n" not in str(one):
            return _spelled(str(one))
    for one in (header.get_all("Classifier") or []) if header is not None else table.get("classifiers", []):
        if one.startswith("License :: OSI Approved :: "):
            return _spelled(one.rsplit(" :: ", 1)[1])
    for path in sorted(folder.glob("*")):
        if re.match(r"(?i)(licen[cs]e|copying|unlicense)", path.name) and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            return next((name for pattern, name in _TEXTS if re.search(pattern, text)), "unknown")
    return "unknown"


def _spelled(text: str) -> str:
    """Return the name of a license as the Hub spells it, if it is a usual one."""
    plain = text.strip().lower()
    for pattern, name in (
        (r"^(the )?mit\b", "mit"), (r"^apache.*2", "apache-2.0"), (r"^apache", "apache-2.0"),
        (r"^(new bsd|bsd.*3|.*3-clause)", "bsd-3-clause"), (r"^(bsd.*2|simplified bsd)", "bsd-2-clause"),
        (r"^isc", "isc"), (r"^(mpl|mozilla)", "mpl-2.0"), (r"^(python|psf)", "psf"),
    ):  # fmt: skip
        if re.search(pattern, plain):
            return name
    return re.sub(r"\s+", "-", plain)[:60]


def _pyproject(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
