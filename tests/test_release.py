"""The workflow that publishes a release: it publishes only what it has built, checked and tried, and holds no token."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import yaml

from composer_hub import __version__

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
JOBS = yaml.safe_load(TEXT)["jobs"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def lines_of(job: str) -> str:
    return "\n".join(step.get("run", step.get("uses", "")) for step in JOBS[job]["steps"])


def test_only_the_job_that_publishes_may_ask_for_the_right_to_and_none_has_a_secret() -> None:
    assert JOBS["publish"]["needs"] == ["check", "test-all"]
    assert [name for name, job in JOBS.items() if "id-token" in job.get("permissions", {})] == ["publish"]
    assert "secrets." not in TEXT


def test_every_test_passes_before_a_release_and_each_night() -> None:
    text = (ROOT / JOBS["test-all"]["uses"]).read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert "make test-all" in [step.get("run") for step in workflow["jobs"]["test-all"]["steps"]]
    assert {"workflow_call", "schedule"} <= set(workflow[True])  # YAML 1.1 reads the key `on` as true


def test_what_is_published_is_what_was_checked() -> None:
    assert "scripts/check_release.sh" in lines_of("check")
    assert os.access(ROOT / "scripts" / "check_release.sh", os.X_OK)
    assert "build" not in lines_of("publish")


def test_every_python_that_the_index_names_is_tried() -> None:
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert JOBS["check"]["strategy"]["matrix"]["python"] == named


def test_the_line_that_compares_the_tag_matches_the_version_that_the_package_prints() -> None:
    assert __version__ == PROJECT["version"]
    assert f'\nversion = "{PROJECT["version"]}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
