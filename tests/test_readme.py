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
    line.removeprefix("uvx --from . ")
    for line in shell_lines()
    if line.startswith(("composer-hub", "uvx --from . composer-hub"))
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


@pytest.mark.parametrize("page", ["README.md", "docs/tasks.md"])
def test_a_page_shows_the_trainer_under_accelerate(page: str) -> None:
    launched = re.findall(r"^accelerate launch (\S+) --config (\S+)", (ROOT / page).read_text(), re.MULTILINE)
    assert launched
    assert all((ROOT / path).is_file() for paths in launched for path in paths)


def test_the_first_commands_of_the_readme_work_from_a_checkout_and_need_no_installation() -> None:
    assert shell_lines()[:3] == ["make demo", "make test", "uvx --from . composer-hub demo"]


ASKS_AN_INDEX = re.compile(
    r"(?:pip3? install|uvx|uv tool install|uv add|uv pip install|--with)\b[^\n]*?composer[-_]hub"
)
IN_A_CHECKOUT = "uvx --from . composer-hub"


def asking_an_index(text: str) -> list[str]:
    """Return what tells a reader to install a release."""
    return ASKS_AN_INDEX.findall(text.replace(IN_A_CHECKOUT, ""))


@pytest.mark.parametrize(
    "line", ["uvx composer-hub demo", 'pip install -q "composer-hub[train]"', "uv add composer-hub"]
)
def test_a_line_that_needs_a_release_is_found(line: str) -> None:
    assert asking_an_index(line)
    assert not asking_an_index(IN_A_CHECKOUT)


def test_only_the_installation_of_the_readme_speaks_of_a_release() -> None:
    """There is none. With the first release, this test goes, and the README's paragraph changes."""
    future = README.partition("There is no release yet.")[2].partition("\n\n")[0]
    assert asking_an_index(future)
    patterns = ("docs/**/*.md", "composer_hub/**/*.py", "composer_hub/**/*.txt", "dataset_cards/*", "space/**/*",
                "configs/**/*.yaml", "scripts/*", "Makefile", "AGENTS.md")  # fmt: skip
    files = [path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()]
    texts = {str(path.relative_to(ROOT)): path.read_text(errors="replace") for path in files}
    texts["README.md"] = README.replace(future, "")
    assert {name: found for name, text in texts.items() if (found := asking_an_index(text))} == {}


def test_the_two_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert named == ["demo", "test"]
    assert set(named) <= set(targets)
    assert "make test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("path", re.findall(r"\]\(((?!http)[^)]+)\)", README))
def test_every_page_that_the_readme_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_every_test_file_that_the_page_of_attacks_names_exists() -> None:
    page = (ROOT / "docs/results/attacks.md").read_text(encoding="utf-8")
    files = re.findall(r"`(tests/[\w/]+\.py)`", page)
    assert [path for path in files if not (ROOT / path).is_file()] == []
    assert len(files) > 30
