"""Run jobs over one tree, one forked child per job: edits in, reports out. The same for every language.

The parent writes a job's edits into the tree, waits for the child's report, and restores every file that the job
changed. A job that kills the parent leaves no report, and the caller runs the others again.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

MAX_MESSAGE = 300  # characters of a failure; a longer one is not quoted


def limit_process(seconds):
    """End this process after `seconds` of processor time; each child may use as much again."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = int(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5 if hard == resource.RLIM_INFINITY else min(hard, most + 5)))


def reason(text, tree):
    """Return the message of a failure, if it is the same on every machine; else nothing."""
    text = re.sub(rf"(?<![\w/]){re.escape(tree)}/", "", text)
    places = (
        os.path.dirname(tree),
        sys.prefix,
        sys.base_prefix,
        os.environ.get("HOME") or "/root",
        tempfile.gettempdir(),
    )
    is_own = any(place in text for place in places) or re.search(r"0x[0-9a-f]{4}|\d{9}|\d\.\d{9}", text)
    if is_own or len(text) >= MAX_MESSAGE:
        return ""
    return "".join(one if one.isprintable() or one == "\n" else f"\\u{ord(one):04x}" for one in text.strip())


def load(path):
    """Import a script by its path."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def wait(child, seconds):
    """Wait for a child and return its exit code; kill its session after the time (None), and what it left behind."""
    deadline = time.monotonic() + seconds
    pause = 0.001
    code = None
    while code is None and time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
        else:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return code


def used():
    """Return the CPU seconds of all children that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def run_all(setting, run_tests):
    """Run every job and write its report."""
    tree, original, out = (Path(setting[name]) for name in ("tree", "original", "out"))
    before = signature(tree)
    for number, job in enumerate(setting["jobs"]):
        write_edits(tree, job["edits"], setting["clock"] + number)
        cpu = used()
        child = os.fork()
        if not child:
            child_main(job, setting, out, run_tests)
        code = wait(child, job["seconds"] * setting["patience"])
        ended = {"exit": code, "cpu_s": round(used() - cpu, 4)}
        (out / f"{job['name']}.end").write_text(json.dumps(ended))
        restore(tree, original, before)
    times = os.times()
    (out / "total").write_text(str(round(sum(times[:4]), 4)))


def child_main(job, setting, out, run_tests):
    """Run one job in a fork and end it; its report appears whole or not at all."""
    try:
        os.setsid()
        limit_process(job["seconds"])
        sys.dont_write_bytecode = not job.get("compile")
        log = os.open(out / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(setting["tree"])
        report = run_tests(job, setting)
        partial = out / f".{job['name']}"
        partial.write_text(json.dumps(report))
        partial.rename(out / f"{job['name']}.json")
    except BaseException as error:  # noqa: BLE001 - also an exit of the package ends the job here
        print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(70)
    os._exit(0)  # without the atexit handlers of the tests


def write_edits(tree, edits, clock):
    """Write the texts of edits below a tree with `clock` as their time; a text of None deletes its file."""
    for name, text in edits:
        path = tree / name
        if text is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        os.utime(path, (clock, clock))  # compiled files are found by time and size, so no two edits share a time


def signature(tree):
    """Return path -> size and time of every file and link."""
    found, todo = {}, [str(tree)]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                else:
                    status = entry.stat(follow_symlinks=False)
                    found[entry.path] = (status.st_size, status.st_mtime_ns)
    return found


def restore(tree, original, before):
    """Bring every file back that differs from the original tree."""
    now = signature(tree)
    for path in now.keys() - before.keys():
        os.unlink(path)
    for path, state in before.items():
        if now.get(path) != state:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copy2(original / os.path.relpath(path, tree), path)
