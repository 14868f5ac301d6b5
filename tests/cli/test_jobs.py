"""`composer-hub jobs` trains a tiny model by jobs of the embedded Hub."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download

from composer_hub import exits
from composer_hub.local_hub.server import find_running, start_server
from tests.cli.conftest import Command

ROOT = Path(__file__).parents[2]
TINY = (
    "--model_name_or_path small --environment desk --num_tasks 8 --max_steps 3 --per_device_train_batch_size 4 "
    "--num_generations 4 --max_completion_length 40 --max_tool_calling_iterations 1 --use_cpu true --bf16 false "
    "--gradient_checkpointing false --save_steps 1 --save_total_limit 2 --report_to none --license apache-2.0"
)
# The second batch of the first job never ends, so its time limit ends the job.
HANG_ONCE = """
import os, time
from pathlib import Path

def hang_once(completions, trainer_state=None, **rest):
    mark = Path(os.environ["HANG_MARK"])
    if trainer_state.global_step >= 1 and not mark.exists():
        mark.touch()
        time.sleep(600)
    return [float(len(str(one)) % 2) for one in completions]
"""
Jobs = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the environment in which commands use a Hub that runs jobs."""
    root = tmp_path_factory.mktemp("jobs")
    with start_server(root / "hub", ["--allow-local-jobs"]) as server:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        yield kept | {
            "COMPOSER_HUB_HOME": str(server.root),
            "HF_HOME": str(root / "home"), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
        }  # fmt: skip


@pytest.fixture
def jobs(home: dict[str, str], tmp_path: Path) -> Jobs:
    """Run `composer-hub jobs …`, which never prints a traceback."""

    def call(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "composer_hub", "jobs", *map(str, words)]
        run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=home | env, timeout=600)
        assert "Traceback" not in run.stderr, run.stderr
        return run

    return call


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_run_is_continued_after_its_time_limit_then_published_and_loads(
    jobs: Jobs, home: dict[str, str], tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("trl")
    from transformers import AutoModelForCausalLM

    from composer_hub.train.tiny import small_model

    model, _ = small_model()
    (tmp_path / "my_rewards.py").write_text(HANG_ONCE)
    # A busy machine may not reach its first checkpoint in time; then the run continues with more, as a user would.
    seconds = 40
    run = jobs(
        *("launch", "--max-usd", "0", "--timeout", f"{seconds}s", "--with", "my_rewards.py"),
        *("--secret", "HANG_MARK"),
        *("--", "--repo", "me/tiny", "--rewards", "my_rewards:hang_once", *TINY.split()),
        HANG_MARK=str(tmp_path / "mark"),
    )
    while run.returncode == exits.FAILURE and "without a new checkpoint" in run.stderr and seconds < 200:
        seconds *= 2
        run = jobs("resume", "tiny", "--timeout", f"{seconds}s", HANG_MARK=str(tmp_path / "mark"))
    assert run.returncode == exits.DONE, run.stderr
    rows = json.loads(jobs("status", "tiny", "--format", "json").stdout)
    assert (tmp_path / "mark").exists()
    assert [row["state"] for row in rows][-1] == "done"
    killed = next(row for row in rows if row["step"] == 1)
    assert killed["state"] == "out of time"
    assert "timeout" in killed["message"]
    assert "exit code 0, kept up to step 3" in run.stderr
    server = find_running(Path(home["COMPOSER_HUB_HOME"]))
    assert server is not None
    folder = snapshot_download("me/tiny", endpoint=server.endpoint, token=server.token, cache_dir=tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert (loaded.num_parameters(), loaded.dtype) == (model.num_parameters(), torch.float32)


@pytest.mark.slow
def test_an_interrupted_launch_leaves_the_job_running_and_shows_how_to_cancel_it(
    in_process: Command, home: dict[str, str], tmp_path: Path
) -> None:
    # A test run in the background of a script inherits an ignored SIGINT; the command must not.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-m", "composer_hub", "jobs", "launch", "--max-usd", "0", "--timeout", "5m"]
    words = ["--", "--repo", "me/interrupted", *TINY.split()]
    with subprocess.Popen(
        [*command, *words], stderr=subprocess.PIPE, text=True, env=home, cwd=tmp_path, preexec_fn=heed
    ) as process:
        assert process.stderr is not None
        line = ""
        while "Job 1 of interrupted: " not in line:
            line = process.stderr.readline()
            assert line, "the command ended before it started a job"
        process.send_signal(signal.SIGINT)
        stderr = process.stderr.read()
    assert process.returncode == exits.INTERRUPTED, stderr
    assert "composer-hub jobs cancel interrupted" in stderr
    assert "Traceback" not in stderr
    (row,) = json.loads(in_process("jobs", "status", "interrupted", "--format", "json").stdout)
    assert row["state"] in ("scheduling", "running")
    assert in_process("jobs", "cancel", "interrupted").returncode == exits.DONE
    (row,) = json.loads(in_process("jobs", "status", "interrupted", "--format", "json").stdout)
    assert row["state"] == "canceled"
    assert in_process("jobs", "cancel", "interrupted").returncode == exits.NOTHING_TO_DO
    listed = json.loads(in_process("jobs", "status", "--format", "json").stdout)
    assert "interrupted" in [one["run"] for one in listed]


def test_a_plan_prints_the_cost_and_refuses_a_cap_below_ten_minutes(in_process: Command) -> None:
    words = ["--usd-per-hour", "2.4", "--timeout", "6h", "--format", "json"]
    plan = in_process("jobs", "plan", *words, "--max-usd", "48", "--", "--repo", "me/planned", *TINY.split())
    assert plan.returncode == exits.DONE, plan.stderr
    row = json.loads(plan.stdout)
    assert (row["hours_per_job"], round(row["max_hours"])) == (6, 20)
    none = in_process("jobs", "plan", *words, "--", "--repo", "me/planned", *TINY.split())
    assert (none.returncode, none.stdout) == (exits.USAGE, "")
    assert "--max-usd" in none.stderr
    cheap = in_process("jobs", "plan", *words, "--max-usd", "0.25", "--", "--repo", "me/planned", *TINY.split())
    assert cheap.returncode == exits.REFUSED
    assert in_process("jobs", "status", "planned").returncode == exits.FAILURE


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        pytest.param(["launch", "--flavor", "h200", "--max-usd", "1", "--", "--repo", "me/x"], 2, "local", id="flavor"),
        pytest.param(["launch", "--max-usd", "1", "--secret", "NOPE", "--", "--repo", "me/x"], 2, "NOPE", id="secret"),
        pytest.param(["launch", "--max-usd", "1", "--timeout", "soon", "--", "--repo", "me/x"], 2, "10m", id="timeout"),
        pytest.param(["launch", "--max-usd", "1", "--", "--max_steps", "1"], 2, "--repo", id="no target"),
        pytest.param(["resume", "no-such-run"], 1, "no run 'no-such-run'", id="resume nothing"),
        pytest.param(["cancel", "no-such-run"], 1, "no run", id="cancel nothing"),
    ],
)  # fmt: skip
def test_an_error_is_one_line(in_process: Command, words: list[str], code: int, message: str) -> None:
    run = in_process("jobs", *words)
    assert run.returncode == code, run.stderr
    assert message in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def page_lines() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "jobs.md").read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


@pytest.mark.parametrize("line", page_lines())
def test_every_command_of_the_page_exists_and_its_local_plan_runs(line: str, in_process: Command) -> None:
    ours = shlex.split(line.partition("composer-hub jobs ")[2].partition(" -- ")[0])
    help_text = in_process("jobs", ours[0], "--help").stdout
    assert all(word in help_text for word in ours if word.startswith("--"))
    if line.startswith("composer-hub jobs plan") and "--to hub" not in line:
        run = in_process(*line.split()[1:])
        assert run.returncode == exits.DONE, run.stderr


def test_the_header_of_the_script_has_the_defaults_of_the_launcher() -> None:
    from huggingface_hub.cli._uv_script_header import parse_uv_script_header

    from composer_hub.jobs.package import EXTRAS
    from composer_hub.jobs.plan import DEFAULT_FLAVOR, DEFAULT_TIMEOUT, TOKEN

    text = (ROOT / "scripts" / "train.py").read_text()
    header = parse_uv_script_header(text)
    assert header is not None
    assert (header.flavor, header.timeout, header.secrets) == (DEFAULT_FLAVOR, DEFAULT_TIMEOUT, [TOKEN])
    assert f'dependencies = ["composer-hub{EXTRAS}"]' in text
