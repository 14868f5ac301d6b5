"""The README is run: every command it shows exists, with the options it shows, and its local lines do what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from composer_hub.cli.main import root

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def shell_lines() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [line.split("  #")[0].strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")]


COMMANDS = [
    line.removeprefix("uvx ") for line in shell_lines() if line.startswith(("composer-hub", "uvx composer-hub"))
]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_readme_exists_with_its_options(line: str) -> None:
    words = shlex.split(line.split(" -- ")[0])[1:]
    names: list[str] = []
    group: click.Command | None = root
    for word in words:
        if not isinstance(group, click.Group):
            break
        group = group.get_command(click.Context(group), word)
        names.append(word)
    text = CliRunner().invoke(root, [*names, "--help"], catch_exceptions=False).output
    assert text.startswith("Usage: ")
    for option in (word for word in words if word.startswith("--")):
        assert option in text, f"{option} is not an option of composer-hub {' '.join(names)}"


def test_the_first_command_of_the_readme_needs_no_installation() -> None:
    assert shell_lines()[0] == "uvx composer-hub demo"


def test_the_two_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert named == ["demo", "test"]
    assert set(named) <= set(targets)
    assert "make test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("path", re.findall(r"\]\(((?!http)[^)]+)\)", README))
def test_every_page_that_the_readme_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()
