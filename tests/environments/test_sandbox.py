"""Sandboxes: what a command cannot do, and that nothing of it survives the call."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from composer_hub import exits
from composer_hub.environments import seccomp
from composer_hub.environments.sandbox import KINDS, Limits, Sandbox, SandboxError, holds, open_sandbox


@pytest.fixture(scope="module", params=KINDS)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    try:
        return open_sandbox(request.param)
    except (exits.Refused, SandboxError) as error:
        pytest.skip(str(error))


@pytest.fixture
def strongest() -> Sandbox:
    try:
        return open_sandbox()
    except exits.Refused as error:
        pytest.skip(str(error))


@pytest.fixture
def root() -> Iterator[Path]:
    # pytest keeps its own folders private, and without mounts a sandbox's user must pass them.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        (Path(folder) / "tree").mkdir()
        yield Path(folder) / "tree"


def alive(marker: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", marker.encode()]:
            found.append(path.parent.name)
    return found


def test_a_sandbox_holds_what_it_claims(sandbox: Sandbox) -> None:
    results = holds(sandbox)
    assert results["limited memory"]
    if sandbox.isolation != "weak":
        assert all(results.values()), results


def test_a_command_works_in_its_tree_and_sees_only_the_given_variables(sandbox: Sandbox, root: Path) -> None:
    os.environ["COMPOSER_SECRET"] = "s"
    try:
        done = sandbox.run("cat > a; echo $COMPOSER_SECRET $GIVEN; pwd; exit 3", root=root, stdin=b"x" * 100_000,
                           env={"GIVEN": "g"})  # fmt: skip
    finally:
        del os.environ["COMPOSER_SECRET"]
    assert (done.exit_code, done.output.split()) == (3, ["g", sandbox.inside(root)])
    assert (root / "a").stat().st_size == 100_000


ANSWERS = {
    "exit 3": (3, ""),
    "no-such-program": (127, "/bin/bash: line 1: no-such-program: command not found\n"),
    "kill -9 $$": (137, ""),
    "kill -ALRM $$": (142, ""),
    "echo $((1 + 1)) >&2": (0, "2\n"),
    "(exit 5); echo $?; touch a; ls": (0, "5\na\n"),
    "mktemp -q > name && test -w $(cat name)": (0, ""),
    "python3 -c \"import subprocess as s, sys; sys.exit(s.call(['sh', '-c', 'exit 4']))\"": (4, ""),
    "python3 -c 'import os; os.fork() or os._exit(0); print(os.wait()[1])'": (0, "0\n"),
    "python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0)); print(1)'": (0, "1\n"),
    'python3 -c \'import getpass, os.path; print(getpass.getuser(), os.path.expanduser("~") != "~")\'': (
        0,
        "agent True\n",
    ),
    "python3 -c 'import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))' 2>&1 | tail -n 1": (
        0,
        "PermissionError: [Errno 1] Operation not permitted\n",
    ),
    "printf 'é\\n' | grep -c '^.$'": (0, "1\n"),
    "for i in $(seq 30); do sleep 0.3 & done; wait; echo all": (0, "all\n"),
}


@pytest.mark.parametrize("command", ANSWERS)
def test_a_command_gives_the_same_result_in_every_sandbox(sandbox: Sandbox, root: Path, command: str) -> None:
    if sandbox.isolation == "weak":
        pytest.skip("a weak sandbox gives what the machine gives")
    done = sandbox.run(command, root=root)
    assert (done.exit_code, done.output) == ANSWERS[command]


def test_a_null_character_is_refused_before_anything_starts(sandbox: Sandbox, root: Path) -> None:
    open_files = os.listdir("/proc/self/fd")
    for options in ({}, {"env": {"A": "a\0"}}):
        with pytest.raises(ValueError, match="null"):
            sandbox.run("echo a" if options else "echo \0", root=root, **options)
    assert os.listdir("/proc/self/fd") == open_files


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'import time\nwhile time.process_time() < 0.5: pass'",
        "for i in $(seq 25); do python3 -c 'import time\nwhile time.process_time() < 0.02: pass'; done",
    ],
    ids=["one process", "many short ones"],
)
def test_the_wait_for_a_processor_does_not_count(
    sandbox: Sandbox, root: Path, busy_processor: None, command: str
) -> None:
    done = sandbox.run(command, root=root, limits=Limits(seconds=5))
    assert (done.exit_code, done.timed_out) == (0, False)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["sleep 1000", "while :; do :; done", "while :; do sh -c :; done"])
def test_what_waits_or_computes_for_ever_ends_on_a_busy_machine(
    sandbox: Sandbox, root: Path, busy_processor: None, command: str
) -> None:
    done = sandbox.run(command, root=root, limits=Limits(seconds=1, cpu_seconds=30))
    assert (done.exit_code, done.timed_out) == (124, True)


def test_daemons_end_with_the_call(sandbox: Sandbox, root: Path) -> None:
    marker = f"7{os.getpid()}"
    done = sandbox.run(f"setsid sleep {marker} >/dev/null 2>&1 & (sleep {marker} &) ; echo started", root=root)
    assert done.output == "started\n"
    assert not alive(marker)


def test_a_command_that_takes_too_long_ends_with_its_children(sandbox: Sandbox, root: Path) -> None:
    marker = f"8{os.getpid()}"
    done = sandbox.run(f"echo begun; sleep {marker} & sleep {marker}", root=root, limits=Limits(seconds=0.5))
    assert (done.exit_code, done.timed_out, done.output) == (124, True, "begun\n")
    assert not alive(marker)


def test_other_processes_of_the_user_leave_a_command_its_own(sandbox: Sandbox, root: Path) -> None:
    ended = threading.Event()
    others = [threading.Thread(target=ended.wait) for _ in range(Limits().processes * 2)]
    for one in others:
        one.start()
    try:
        assert sandbox.run("(exit 7) & wait $!", root=root).exit_code == 7
    finally:
        ended.set()


def test_a_fork_bomb_ends(sandbox: Sandbox, root: Path) -> None:
    if sandbox.isolation == "weak" and os.geteuid() != 0:
        pytest.skip("the limit counts all processes of the caller")
    marker = f"9{os.getpid()}"
    sandbox.run(f"for i in $(seq 200); do sleep {marker} & done; echo $i", root=root,
                limits=Limits(seconds=1, processes=20))  # fmt: skip
    assert not alive(marker)


def test_output_is_bounded_and_keeps_both_ends(sandbox: Sandbox, root: Path) -> None:
    done = sandbox.run("echo first; seq 100000; echo last", root=root, limits=Limits(output_chars=400))
    assert done.output.startswith("first\n1\n")
    assert done.output.endswith("100000\nlast\n")
    assert len(done.output) < 500
    flood = sandbox.run("yes", root=root, limits=Limits(seconds=60))
    assert flood.flooded
    assert flood.exit_code != 0


def test_files_and_processor_time_are_limited(sandbox: Sandbox, root: Path) -> None:
    limits = Limits(seconds=20, cpu_seconds=1, file_mb=1)
    assert sandbox.run("head -c 3000000 /dev/zero > big", root=root, limits=limits).exit_code != 0
    assert (root / "big").stat().st_size == 1 << 20
    done = sandbox.run(["bash", "-c", "while :; do :; done"], root=root, limits=limits)
    assert done.exit_code in (128 + 9, 128 + 24)
    assert not done.timed_out


TAKING = {
    "memory": "import os, time\nfor _ in range(6):\n    if not os.fork():\n        x = bytearray(b'1') * (100 << 20)\n"
              "        time.sleep(600)\ntime.sleep(600)",
    "disk": "import os, time\nfor n in range(100):\n    with open(f'big{n}', 'wb') as file:\n"
            "        os.posix_fallocate(file.fileno(), 0, 32 << 20)\n    time.sleep(.05)\ntime.sleep(600)",
}  # fmt: skip


@pytest.mark.parametrize("what", TAKING)
def test_what_all_processes_take_together_is_limited(sandbox: Sandbox, root: Path, what: str) -> None:
    limits = Limits(seconds=500, memory_mb=300, total_mb=350, tree_mb=100)
    done = sandbox.run(["python3", "-c", TAKING[what]], root=root, limits=limits)
    assert (done.exceeded, done.exit_code, done.timed_out) == (what, 137, False), done
    done.check_uninterrupted()
    assert sum(path.stat().st_size for path in root.iterdir()) < 2 << 30
    assert sandbox.run(["true"], root=root, limits=limits).exit_code == 0


def test_descriptors_are_passed_and_missing_programs_are_reported(sandbox: Sandbox, root: Path) -> None:
    read, write = os.pipe()
    assert sandbox.run(f"echo report >&{write}", root=root, pass_fds=[write]).exit_code == 0
    os.close(write)
    assert os.read(read, 100) == b"report\n"
    os.close(read)
    assert sandbox.run(["no-such-program"], root=root).exit_code != 0


def test_read_only_paths_are_seen_and_stay_as_they_are(strongest: Sandbox, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "extra" / "file"
    file.parent.mkdir()
    file.write_text("seen")
    done = strongest.run(f"cat {file}; echo x > {file}", root=root, read_only=[file.parent])
    assert done.output.startswith("seen")
    assert file.read_text() == "seen"


_EXPECTED = """
import multiprocessing, socket
print(multiprocessing.Queue().empty(), socket.gethostbyname("localhost"))
"""


def test_processes_share_locks_and_localhost_has_an_address(strongest: Sandbox, root: Path) -> None:
    if strongest.isolation != "bubblewrap":
        pytest.skip("a sandbox without mounts has neither /dev/shm nor sockets")
    done = strongest.run(["python3", "-c", _EXPECTED], root=root)
    assert (done.exit_code, done.output) == (0, "True 127.0.0.1\n")


def test_a_file_that_is_closed_to_the_sandboxs_user_is_named(root: Path, tmp_path: Path) -> None:
    try:
        sandbox = open_sandbox("bubblewrap")
    except exits.Refused as error:
        pytest.skip(str(error))
    if not sandbox.has_own_user:
        pytest.skip("only root can give a sandbox its own user")
    (tmp_path / "closed").touch(mode=0o600)
    with pytest.raises(SandboxError, match="closed cannot be read"):
        sandbox.run(["true"], root=root, read_only=[tmp_path / "closed"])


def test_packages_of_the_running_interpreter_are_not_seen(sandbox: Sandbox, root: Path) -> None:
    if sandbox.isolation == "weak":
        pytest.skip("a weak sandbox hides nothing")
    done = sandbox.run(["python3", "-c", "import json, pip"], root=root)
    assert "No module named 'pip'" in done.output or "Permission denied" in done.output


def test_packages_of_the_system_are_not_seen(sandbox: Sandbox, root: Path) -> None:
    if sandbox.isolation == "weak":
        pytest.skip("a weak sandbox hides nothing")
    installed = "/usr/lib/python3*/dist-packages/*/*.py", "/usr/lib/node_modules/*/package.json"
    if not any(found for one in installed for found in Path("/").glob(one.lstrip("/"))):
        pytest.skip("the system has no packages")
    done = sandbox.run(f"cat {' '.join(installed)} 2> /dev/null | wc -c", root=root)
    assert (done.exit_code, done.output) == (0, "0\n")


def test_two_sandboxes_have_two_users(strongest: Sandbox, root: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a sandbox its own user")
    first, second = strongest, open_sandbox()
    users = {sandbox.run("id -u", root=root.parent / name).output for sandbox, name in ((first, "a"), (second, "b"))
             if not (root.parent / name).mkdir()}  # fmt: skip
    assert len(users) == 2
    assert "0\n" not in users


def test_two_runs_never_have_the_same_user_wherever_their_temporary_files_are(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a sandbox its own user")
    code = "from composer_hub.environments.process import OwnUser; u = OwnUser(); print(u.uid, flush=True); input()"
    runs = []
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        env = os.environ | {"TMPDIR": str(tmp_path / name)}
        runs.append(subprocess.Popen([sys.executable, "-c", code], env=env, stdin=PIPE, stdout=PIPE, text=True))
    try:
        assert len({one.stdout.readline() for one in runs if one.stdout}) == 3
    finally:
        for one in runs:
            one.communicate("\n")


def test_root_without_other_users_runs_commands_as_itself(strongest: Sandbox) -> None:
    words = ["unshare", "--user", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("user namespaces are not permitted here")
    code = "from composer_hub.environments.sandbox import described; print(*described())"
    done = subprocess.run([*words, sys.executable, "-c", code], capture_output=True, text=True)
    assert "the caller's user" in done.stdout, done.stderr
    assert "no reading outside" in done.stdout


NO_LANDLOCK = """
import struct
from composer_hub import exits
from composer_hub.environments import confine, sandbox
load, jump, answer = (lambda code: lambda value, to=0: struct.pack("<HBBI", code, 0, to, value)), 0x15, 0x06
parts = [load(0x20)(0), load(jump)(confine.CREATE_RULESET, 1), load(answer)(0x50026), load(answer)(0x7FFF0000)]
confine.prctl(confine.NO_NEW_PRIVS, 1)
confine.filter_calls(b"".join(parts))
try:
    sandbox.open_sandbox()
except exits.Refused as error:
    print(error.exit_code, error)
"""


def test_without_bubblewrap_and_landlock_commands_are_refused_with_both_reasons(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", NO_LANDLOCK], env=os.environ | {"PATH": str(tmp_path)},
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout.startswith(f"{exits.REFUSED} No sandbox isolates commands"), done.stderr
    assert "bubblewrap: bwrap is not installed; landlock: " in done.stdout


def test_a_weak_sandbox_must_be_named_and_others_are_refused_by_name(strongest: Sandbox) -> None:
    assert strongest.isolation != "weak"
    with pytest.raises(exits.UsageError, match="bubblewrap, landlock, weak"):
        open_sandbox("docker")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_jumps_inside_itself(machine: str) -> None:
    code = seccomp.program(sockets=False, machine=machine)
    count = len(code) // 8
    for index in range(count):
        op, to_true, to_false = code[index * 8], code[index * 8 + 2], code[index * 8 + 3]
        if op not in (0x20, 0x06):
            assert max(to_true, to_false) + index + 1 < count
    assert code[(count - 1) * 8] == 0x06


def test_a_sandbox_that_cannot_start_says_why(strongest: Sandbox, tmp_path: Path) -> None:
    with pytest.raises((SandboxError, OSError)):
        strongest.run("true", root=tmp_path / "missing")


def test_no_folder_is_left_behind(sandbox: Sandbox, root: Path) -> None:
    begun = time.time()
    sandbox.run("mkdir -p $HOME/.cache; echo x > $HOME/.cache/y", root=root)
    homes = [path for path in Path("/tmp").glob("composer-home-*") if path.stat().st_mtime >= begun]
    assert not [path for path in homes if (path / ".cache").exists()]
