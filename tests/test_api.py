"""The public API: what each stage exports, and what the documentation shows of it."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import composer_hub
from composer_hub import hub, ingest
from composer_hub.ingest.workers import MIN_PARALLEL_BYTES
from composer_hub.replay import fake

ROOT = Path(composer_hub.__file__).parents[1]
STAGES = sorted(
    path.parent.name
    for path in Path(composer_hub.__file__).parent.glob("*/__init__.py")
    if "__all__" in path.read_text(encoding="utf-8")
)
SILENT = [
    path for path in Path(composer_hub.__file__).parent.rglob("*/__init__.py") if "__all__" not in path.read_text()
]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def python_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_a_package_that_lists_no_names_exports_none() -> None:
    assert {"integrations", "local_hub"} <= {path.parent.name for path in SILENT}
    assert not [path for path in SILENT if len(ast.parse(path.read_text()).body) > 1], "give it an `__all__`"


@pytest.mark.parametrize("stage", [*STAGES, "replay.fake"])
def test_a_stage_exports_exactly_its_public_names(stage: str) -> None:
    if stage == "train":
        pytest.importorskip("trl")
    module = importlib.import_module(f"composer_hub.{stage}")
    names = {name for name in dir(module) if not name.startswith("_")}
    public = {name for name in names if not isinstance(getattr(module, name), ModuleType)}
    not_ours = {"TYPE_CHECKING", "Any", "annotations", "importlib"}
    assert public - not_ours <= set(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)  # a name may load its module when it is first used


@pytest.mark.parametrize("stage", STAGES)
def test_the_page_shows_every_stage_with_names_that_it_exports(stage: str) -> None:
    shown = set(re.findall(rf"(?<![.\w-]){stage}\.(\w+)", "\n".join(python_blocks(PAGE))))
    module = importlib.import_module(f"composer_hub.{stage}")
    assert shown, f"docs/api.md does not show composer_hub.{stage}"
    assert shown <= set(module.__all__)


@pytest.mark.parametrize("block", python_blocks(PAGE), ids=lambda block: block.split("import ")[1].split("\n")[0])
def test_an_example_of_the_page_is_five_lines_of_valid_python(block: str) -> None:
    compile(block, "api.md", "exec")
    assert len([line for line in block.splitlines() if line.strip()]) <= 5


def test_the_whole_line_of_the_readme_runs_as_a_script(tmp_path: Path) -> None:
    (block,) = [block for block in python_blocks(README) if "ingest.ingest" in block]
    sessions = Path(shutil.copytree(ROOT / "composer_hub" / "demo" / "sessions", tmp_path / "sessions"))
    (sessions / "notes.txt").write_bytes(b"x" * (MIN_PARALLEL_BYTES + 1))  # so much that worker processes read it
    oracle = fake.oracle_of(ingest.ingest([sessions], ingest.IngestOptions(workers=1)).traces())
    with fake.serving(fake.TeacherServer(oracle=oracle)) as url:
        places = {
            '"~/.claude/projects"': repr(str(sessions)),
            'hub.destination("local")': f"hub.destination({str(tmp_path / 'datasets')!r})",
            "hf:deepseek-ai/DeepSeek-V4-Pro:novita,hf:zai-org/GLM-5.3:novita": f"{url}#small,{url}#medium,{url}#large",
        }
        for literal, value in places.items():
            assert literal in block
            block = block.replace(literal, value)
        script = tmp_path / "line.py"
        script.write_text(block)
        subprocess.run([sys.executable, script], check=True, cwd=tmp_path, timeout=600)
    where = hub.FolderDestination(tmp_path / "datasets")
    assert hub.load(where, "me/traces").num_rows("traces") == 3
    assert hub.load(where, "me/pairs").num_rows("default") > 0
