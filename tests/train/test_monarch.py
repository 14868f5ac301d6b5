"""The page's actors run: a stage of this project on another process, called through Monarch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("monarch.actor", reason="torchmonarch is not installed")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "training_apart.md"
RATE = """
evaluators = this_host().spawn_procs().spawn("evaluators", Evaluator)
(rate,) = evaluators.rate.call([[1.0, 0.0], [1.0, 1.0]]).get().values()
print("pass@1", rate)
"""


def test_the_actors_of_the_page_answer_from_their_processes(tmp_path: Path) -> None:
    (source,) = re.findall(r"```python\n(from monarch.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    script = tmp_path / "actors.py"
    classes, _, last = source.partition("environments = ")
    script.write_text(f'{classes}\nif __name__ == "__main__":\n{indented("environments = " + last + RATE)}')
    done = subprocess.run([sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "played 1.0 1.0" in done.stdout
    assert "pass@1 0.75" in done.stdout


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
