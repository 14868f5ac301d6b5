"""The conventions of the command line: lazy help, formats, exit codes and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from composer_hub import exits
from composer_hub.cli.grouped import grouped
from composer_hub.cli.main import COMMANDS, main, root
from composer_hub.cli.uniform import uniform
from composer_hub.options import option
from tests.cli.conftest import Command
from tests.hidden import HIDDEN, hidden_in

ROOT = Path(__file__).parents[2]


def composer_hub(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "composer_hub", *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600, **options)  # type: ignore[call-overload]


def test_help_names_every_command_and_imports_no_stage() -> None:
    code = (
        "import sys; from composer_hub.cli.main import root\n"
        "root.main(['--help'], standalone_mode=False)\n"
        "print(*[name for name in sys.modules if name.startswith('composer_hub.')], file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert all(name in run.stdout for name in COMMANDS)
    assert set(run.stderr.split()) == {
        "composer_hub.cli", "composer_hub.cli.main", "composer_hub.cli.signals", "composer_hub.cli.uniform",
        "composer_hub.exits",
        "composer_hub.local_hub", "composer_hub.local_hub.characters", "composer_hub.local_hub.errors",
        "composer_hub.output",
    }  # fmt: skip


@pytest.mark.parametrize("command", ["replay", "teachers"])
def test_the_help_of_a_command_that_asks_teachers_loads_neither_a_run_nor_the_redaction(command: str) -> None:
    code = (
        "import sys; from composer_hub.cli.main import root\n"
        f"root.main(['{command}', '--help'], standalone_mode=False)\n"
        "print(*[name for name in ('composer_hub.redact', 'composer_hub.replay.runs') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout.endswith("\n\n")
    assert "Commands:" in run.stdout


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every command below a group with its name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join([*path, name]), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = dict(commands(root))


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_help_that_fits_its_list(name: str) -> None:
    command = ALL[name]
    assert command.help
    assert command.short_help
    assert len(command.short_help) < 45
    assert name not in COMMANDS or COMMANDS[name][1] == command.short_help


@pytest.mark.parametrize("name", ALL)
def test_a_required_option_that_is_not_given_is_missing(name: str) -> None:
    context = click.Context(ALL[name])
    for param in ALL[name].params:
        assert not param.required or param.value_is_missing(param.get_default(context)), param.name


@pytest.mark.parametrize("name", ALL)
def test_to_always_names_a_destination(name: str) -> None:
    for param in ALL[name].params:
        if "--to" in param.opts and not getattr(param, "hidden", False):
            assert isinstance(param, click.Option)
            assert param.default == "local"
            assert param.metavar == "local|hub|FOLDER" or param.type.choices == ("local", "hub")  # type: ignore[attr-defined]


NUMBERS = [
    (name, param.opts[0], param.type)
    for name, command in ALL.items()
    for param in command.params
    if isinstance(param.type, (click.types.IntParamType, click.types.FloatParamType))
]


@pytest.mark.parametrize(("name", "option", "kind"), NUMBERS, ids=[f"{name} {option}" for name, option, _ in NUMBERS])
def test_a_number_of_an_option_is_finite_and_not_negative(name: str, option: str, kind: click.ParamType) -> None:
    for value in ("nan", "inf", "-inf", "-1", "-5"):
        with pytest.raises(click.BadParameter):
            kind.convert(value, None, None)


@pytest.mark.parametrize("line", ["replay plan --audit nan", "tasks make --max-commits -5", "ingest --shard-mb -5"])
def test_a_number_out_of_range_is_a_usage_error(line: str) -> None:
    result = CliRunner().invoke(root, line.split())
    assert result.exit_code == exits.USAGE
    assert "Invalid value for" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_prints_its_help(name: str) -> None:
    result = CliRunner().invoke(root, [name, "--help"], prog_name="composer-hub")
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"Usage: composer-hub {name}")


def test_an_unknown_command_is_a_usage_error() -> None:
    run = composer_hub("no-such-command")
    assert run.returncode == 2
    assert "No such command" in run.stderr


NAME = HIDDEN.replace("\0", "")  # what a file name can hold; half pairs stand for its bytes that are no UTF-8


@pytest.mark.parametrize(
    "words",
    [
        [NAME], ["report", f"--{NAME}"], ["report", NAME], ["replay", NAME], ["train", NAME],
        ["lineage", NAME, "--from", "."],  # a folder, or it starts the embedded Hub in the user's home
    ],
)  # fmt: skip
def test_an_error_names_hidden_characters_of_what_was_typed(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code
    told = capsys.readouterr().err
    assert hidden_in(told) == []
    assert "U+202E" in told or "\\u202e" in told


def mistyped(word: str) -> str:
    """Leave out the last letter but one."""
    return word[:-2] + word[-1]


@pytest.mark.parametrize("name", [name for name in ALL if len(name.split()[-1]) > 2])
def test_a_mistyped_command_suggests_the_one_that_was_meant(name: str) -> None:
    *groups, last = name.split()
    result = CliRunner().invoke(root, [*groups, mistyped(last)])
    assert result.exit_code == 2
    assert repr(last) in result.output.partition("Did you mean")[2], result.output


# Training's own options are checked with its config; tests/cli/test_train.py has their suggestions.
@pytest.mark.parametrize("name", [name for name in ALL if name != "eval"])
def test_a_mistyped_option_suggests_the_one_that_was_meant(name: str) -> None:
    for spelling in (long for param in ALL[name].params for long in param.opts if long.startswith("--")):
        if len(spelling) > 5:
            result = CliRunner().invoke(root, [*name.split(), mistyped(spelling)])
            assert result.exit_code == 2
            assert repr(spelling) in result.output.partition("Did you mean")[2], result.output


def test_a_bad_repository_name_is_an_error_on_one_line_with_exit_code_2(in_process: Command, tmp_path: Path) -> None:
    run = in_process("lineage", "no-owner", "--from", str(tmp_path))
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert "write it as owner/name" in run.stderr


def test_a_missing_version_is_exit_code_1_and_names_the_place(in_process: Command, tmp_path: Path) -> None:
    run = in_process("lineage", "me/nothing@v1.0.0", "--from", str(tmp_path))
    assert run.returncode == 1
    assert str(tmp_path) in run.stderr


def test_doctor_prints_json_and_no_secret() -> None:
    env = os.environ | {"HF_TOKEN": "hf_secretsecretsecret", "HF_ENDPOINT": "http://127.0.0.1:9"}
    run = composer_hub("doctor", "--format", "json", env=env)
    checks = json.loads(run.stdout)
    assert {"composer_hub", "libraries", "endpoint", "token"} <= {check["name"] for check in checks}
    assert "hf_secret" not in run.stdout + run.stderr
    (endpoint,) = [check for check in checks if check["name"] == "endpoint"]
    assert endpoint["state"] == "warning", "nothing listens there"


def test_an_endpoint_that_answers_with_a_page_is_not_taken_for_the_hub(tmp_path: Path) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>Welcome</html>")

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env = os.environ | {
            "HF_TOKEN": "hf_secretsecretsecret",
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        }
        run = composer_hub("doctor", "--format", "json", env=env)
        server.shutdown()
    states = {check["name"]: check["state"] for check in json.loads(run.stdout)}
    assert (states["endpoint"], states["token"]) == ("warning", "warning")


@pytest.mark.parametrize("address", ["http://127.0.0.1:18765x", "http://127.0.0.1:18765\r", "127.0.0.1"])
def test_an_endpoint_that_is_not_an_address_is_one_sentence(address: str) -> None:
    run = composer_hub("doctor", env=os.environ | {"HF_ENDPOINT": address})
    assert (run.returncode, run.stdout) == (exits.USAGE, "")
    assert run.stderr.startswith(f"composer-hub: HF_ENDPOINT is {address!r}, which is not an address.")


def test_doctor_names_every_extra_of_the_package_and_what_training_needs() -> None:
    run = composer_hub("doctor", "--offline", "--train", "--format", "json", env=dict(os.environ))
    names = {check["name"] for check in json.loads(run.stdout)}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {f"extra [{extra}]" for extra in extras if extra != "dev"} <= names
    assert {"GPUs", "bf16", "memory", "vLLM"} <= names


def test_a_closed_pipe_is_not_an_error() -> None:
    run = subprocess.run(
        f"{sys.executable} -m composer_hub doctor --offline | head -1", shell=True, capture_output=True, text=True,
        cwd=ROOT,
    )  # fmt: skip
    assert run.returncode == 0
    assert "Traceback" not in run.stderr


LEVELS = ("low", "high")


@dataclass(frozen=True)
class Wishes:
    """Options of every kind."""

    max_size: int = option(3, "A number.", min=1, max=9)
    share: float = option(0.5, "A share.")
    level: str = option("low", "A choice.", choices=LEVELS)
    with_tests: bool = option(True, "A pair of flags.", flag="--tests/--no-tests")
    scan: bool | None = option(None, "A pair of flags without a default.")
    fresh: bool = option(False, "A flag.")
    name: str | None = option(None, "A word.", metavar="WORD")
    keep: tuple[str, ...] = option((), "Some choices.", choices=LEVELS)
    files: Sequence[Path] = option((), "Some files.", flag="--file")
    limit: float | None = option(None, "A number that may be missing.", min=0, min_open=True)
    clock: float = 0.0  # is not an option


def wishes(*words: object) -> tuple[list[Wishes], Result]:
    made: list[Wishes] = []

    @click.command()
    @grouped("wishes", Wishes, share={"default": 0.25})
    def command(wishes: Wishes) -> None:
        made.append(wishes)

    return made, CliRunner().invoke(uniform(command), [*map(str, words)])


def test_a_command_gets_the_dataclass_that_its_options_are_made_from(tmp_path: Path) -> None:
    assert wishes()[0] == [Wishes(share=0.25)]
    words = ["--max-size", 9, "--level", "high", "--no-tests", "--no-scan", "--fresh", "--name", "x", "--limit", 1]
    words += ["--keep", "low", "--keep", "high", "--file", tmp_path]
    expected = Wishes(9, 0.25, "high", False, False, True, "x", LEVELS, (tmp_path,), 1.0)
    assert wishes(*words)[0] == [expected]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--max-size", 10], "'--max-size': 10 is not in the range 1<=x<=9"),
        (["--level", "middle"], "'--level': 'middle' is not one of 'low', 'high'"),
        (["--keep", "none"], "'--keep': 'none' is not one of 'low', 'high'"),
        (["--file", "missing"], "'--file': Path 'missing' does not exist"),
        (["--limit", 0], "'--limit': 0.0 is not in the range x>0"),
        (["--share", "-1"], "'--share': -1.0 is not in the range x>=0"),
        (["--clock", 1], "No such option"),
    ],
)  # fmt: skip
def test_a_wrong_value_for_a_field_is_a_usage_error(words: list[object], reason: str) -> None:
    made, result = wishes(*words)
    assert (made, result.exit_code) == ([], exits.USAGE)
    assert reason in result.output


def test_help_shows_every_default_and_range_of_a_dataclass() -> None:
    help = " ".join(wishes("--help")[1].output.split())
    for text in (
        "A number. [default: 3; 1<=x<=9]",
        "A share. [default: 0.25; x>=0]",
        "A choice. [default: low]",
        "A pair of flags. [default: tests]",
        "--name WORD",
        "--scan / --no-scan",
        "--limit FLOAT RANGE",
    ):
        assert text in help
    assert "clock" not in help
