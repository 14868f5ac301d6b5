"""Measure the Space on a million synthetic pairs: server, memory, bytes read, and a reviewer's waits in Chromium.

python -m benchmarks.space build FOLDER      writes the data set (about 3 GB) and its embedded Hub, once
python -m benchmarks.space run FOLDER        serves it, drives it, prints a table
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

REPO = "me/million"
NUM_ROWS = int(os.environ.get("SPACE_ROWS", "1000000"))
NUM_SHARDS = max(20, NUM_ROWS // 25_000)  # unique rows of 10 kB, up to 250 MB in a file
SPACE = Path(__file__).parents[1] / "space"
FILTERS = (
    "error_kind=edit_no_match",
    "agree=no&after_error=yes",
    "teacher=kimi-k2",
    "family=zhipu&max_cost=0.004",
    "model=gpt-6-codex&error_kind=path_not_found&split=test",
    "repository=org/repo-17",
    "q=test_mod_77",
    "q=nothing-has-this",
)
_LIGHT = """
    select i, md5('p' || i)[1:24] as id, md5('t' || (i // 28))[1:24] as trace_id, (i % 28)::bigint as step,
           hash(i) as r, hash(i) % 5 as combo
    from range({start}, {stop}) t(i)
"""
_INDEX = """
    id, case when i % 20 = 0 then 'test' else 'train' end as split, md5('d' || i) || md5('e' || i) as digest, trace_id,
    step as "index", 28::bigint as num_steps, 'L2' as level, (2 + r % 3)::bigint as num_agree,
    (2 + r % 3 + (r // 7) % 3)::bigint as num_votes,
    case combo when 0 then ['kimi-k2', 'glm-5'] when 1 then ['kimi-k2', 'qwen3-coder', 'glm-5']
         when 2 then ['deepseek-v4', 'glm-5'] when 3 then ['qwen3-coder', 'mistral-large']
         else ['kimi-k2', 'deepseek-v4', 'qwen3-coder', 'glm-5'] end as teachers,
    case combo when 0 then ['moonshot', 'zhipu'] when 1 then ['moonshot', 'qwen', 'zhipu']
         when 2 then ['deepseek', 'zhipu'] when 3 then ['mistral', 'qwen']
         else ['deepseek', 'moonshot', 'qwen', 'zhipu'] end as families,
    'kimi-k2' as chosen_teacher,
    ['claude-opus-4-7', 'gpt-6-codex', 'qwen3-coder'][1 + ((r // 11) % 3)::int] as source_model,
    ['anthropic', 'openai', 'qwen'][1 + ((r // 11) % 3)::int] as source_family,
    ['edit_no_match', 'path_not_found', 'command_not_found', 'runtime_exception', '', '', '', '', '']
        [1 + ((r // 13) % 9)::int] as error_kind,
    (r // 17) % 4 = 0 as after_error, (r // 19) % 2 = 0 as resolved, ((r // 23) % 10000) / 1e6 as cost_usd,
    'org/repo-' || ((i // 280) % 300) as repository, 1::bigint as family_mask,
    ['Bash', 'Edit', 'Read', 'Grep'][1 + (r % 4)::int] as chosen_tool,
    ['Bash', 'Edit', 'Read', 'Grep'][1 + ((r // 3) % 4)::int] as rejected_tool,
    'pytest -q tests/test_mod_' || (r % 997) || '.py -k case_' || (i % 7919) as chosen_preview,
    'src/pkg_' || (r % 91) || '/module_' || (r % 991) || '.py: return other_' || (i % 7919) as rejected_preview
"""
_FILLER = "A line of a session that repeats itself, as tool results do. " * 9
_MESSAGE = """
    '{"role":"tool","content":"'
        || array_to_string(list_transform(range(23), lambda k: md5(KEY || '-' || k)), ' ')
        || ' ' || FILLER || '","tool_call_id":"c"}'
"""
_HEAVY = """
    id as pair_id, trace_id, md5('s' || i)[1:24] as step_id, step as "index", 28::bigint as num_steps,
    list_transform(range(7), lambda n: MESSAGE) as prompt,
    ['{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"Bash","arguments":'
        || '{"command":"pytest -q tests/test_mod_' || (r % 997) || '.py"}}}]}'] as chosen,
    ['{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"Bash","arguments":'
        || '{"command":"pytest -x tests/test_mod_' || (r % 991) || '.py"}}}]}'] as rejected,
    ['{"type":"function","function":{"name":"Bash"}}'] as tools,
    'L2' as level,
    (2 + r % 3)::bigint as num_agree, (2 + r % 3 + (r // 7) % 3)::bigint as num_votes,
    ['kimi-k2', 'glm-5'] as teachers, []::varchar[] as excluded_teachers, ['moonshot', 'zhipu'] as families,
    'kimi-k2' as chosen_teacher, 'gpt-6-codex' as source_model, 'openai' as source_family, '' as error_kind,
    false as after_error, true as resolved, '' as chosen_text, '' as rejected_text,
    0.001 as cost_usd, 'other' as license,
    'org/repo-' || ((i // 280) % 300) as repository
"""


# --------------------------------------------------------------------------------------------------------------- build


def build(folder: Path) -> None:
    """Write index, shards and manifest, and commit them to an embedded Hub in the folder."""
    import duckdb
    from huggingface_hub import CommitOperationAdd, HfApi

    from composer_hub.local_hub.server import start_server

    folder.mkdir(parents=True, exist_ok=True)
    database = duckdb.connect()
    light = _LIGHT.format(start=0, stop=NUM_ROWS)
    database.execute(
        f"copy (select {_INDEX} from ({light}) order by id) to '{folder}/index.parquet' (compression zstd)"
    )
    # Rows are published by trace, so a shard takes a range of sorted traces.
    # A session's steps share their messages. Unique messages for each step are the worst case.
    key = "(i // 28) || '-' || (n + step)" if os.environ.get("SPACE_PROMPTS") == "shared" else "i || '-' || n"
    heavy = _HEAVY.replace("MESSAGE", _MESSAGE.replace("FILLER", f"'{_FILLER}'").replace("KEY", key))
    database.execute(f"create table light as select * from ({light}) order by trace_id, step, id")
    size = -(-NUM_ROWS // NUM_SHARDS)
    files, starts = [], {}
    for shard in range(NUM_SHARDS):
        path = folder / f"train-{shard:05d}-of-{NUM_SHARDS:05d}.parquet"
        part = f"select * from light limit {size} offset {shard * size}"
        _write(database.sql(f"select {heavy} from ({part})").to_arrow_reader(100), path)
        files.append(path)
        ((starts[f"data/default/{path.name}"],),) = database.sql(f"select min(trace_id) from ({part})").fetchall()
        print(f"shard {shard + 1} of {NUM_SHARDS}: {path.stat().st_size / 1e6:.0f} MB", flush=True)
    paths = [f"data/default/{path.name}" for path in files]
    tables = {"default": {"num_rows": NUM_ROWS, "index": "index/pairs.parquet", "starts": starts,
                          "splits": {"train": {"num_rows": NUM_ROWS, "files": paths}}}}  # fmt: skip
    manifest = {"kind": "pairs", "version": "1.0.0", "repo": REPO, "tables": tables, "parents": [], "counts": {}}
    with start_server(folder / "hub") as server:
        api = HfApi(endpoint=server.endpoint, token=server.token)
        api.create_repo(REPO, repo_type="dataset", private=True)
        for path, name in zip(files, paths, strict=True):
            api.upload_file(path_or_fileobj=path, path_in_repo=name, repo_id=REPO, repo_type="dataset")
            path.unlink()
        operations = [
            CommitOperationAdd("index/pairs.parquet", str(folder / "index.parquet")),
            CommitOperationAdd("composer_manifest.json", json.dumps(manifest).encode()),
        ]
        commit = api.create_commit(REPO, operations, commit_message="A million pairs", repo_type="dataset")
        api.create_tag(REPO, tag="v1.0.0", revision=commit.oid, repo_type="dataset")


def _write(rows: Any, path: Path) -> None:
    """Write a file as published sets are written."""
    import pyarrow as pa
    from datasets import Features

    from composer_hub.hub.tables import RowWriter

    with RowWriter(path, Features.from_arrow_schema(rows.schema), ("trace_id", "index", "pair_id")) as writer:
        for batch in rows:
            writer.add_table(pa.Table.from_batches([batch]))


# ----------------------------------------------------------------------------------------------------------------- run


def run(folder: Path) -> None:
    """Serve the set and print what a reviewer waits for."""
    from composer_hub.local_hub.server import start_server

    with start_server(folder / "hub") as hub:
        home = folder / "home"
        shutil.rmtree(home, ignore_errors=True)
        port = _free_port()
        env = os.environ | hub.env | {"HF_HOME": str(home), "SPACE_DATASETS": f"{REPO}@v1.0.0"}
        env |= {"GRADIO_SERVER_PORT": str(port), "HF_TOKEN": hub.token, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        started = time.monotonic()
        process = subprocess.Popen([sys.executable, str(SPACE / "app.py")], env=env, stderr=subprocess.DEVNULL)
        address = f"http://127.0.0.1:{port}/"
        try:
            while not _is_up(f"{address}healthz"):
                time.sleep(0.02)
            _show("server answers, from start of the process", f"{time.monotonic() - started:.2f} s")
            drive(address, process.pid, home)
        finally:
            process.terminate()
            process.wait()


def drive(address: str, pid: int, home: Path) -> None:
    """Measure in a Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page(viewport={"width": 1300, "height": 850})
        page.set_default_timeout(600_000)
        begun = time.monotonic()
        page.goto(address, wait_until="commit")
        page.wait_for_selector("#list [data-item]", state="visible")
        _show("first rows on screen, cold (index downloaded on demand)", f"{time.monotonic() - begun:.2f} s")
        page.wait_for_selector("body[data-ready]")
        _show("downloaded to disk by then", f"{_disk_bytes(home) / 1e6:.1f} MB")
        time.sleep(12)  # The copy in memory is ready.
        warm = []
        for _ in range(5):
            begun = time.monotonic()
            page.goto(address, wait_until="commit")
            page.wait_for_selector("#list [data-item]", state="visible")
            warm.append(time.monotonic() - begun)
        _show("first rows on screen, warm (median of 5)", f"{statistics.median(warm):.2f} s")
        page.wait_for_selector("body[data-ready]")
        measure_filters(page)
        measure_moves(page)
        client = page.context.new_cdp_session(page)
        client.send("HeapProfiler.collectGarbage")
        heap = client.send("Runtime.getHeapUsage")["usedSize"]
        _show("browser heap", f"{heap / 1e6:.1f} MB")
        _show("server RSS now / highest", f"{_rss(pid, 'VmRSS'):.0f} / {_rss(pid, 'VmHWM'):.0f} MB")
        browser.close()


def measure_filters(page: Any) -> None:
    """Time each filter from the click to the new rows, three times, by the best one and the median."""
    for query in FILTERS:
        times = []
        for _ in range(3):
            page.evaluate("go(new URLSearchParams(''))")
            page.wait_for_timeout(700)
            times.append(page.evaluate(_TIMED, ["#list", query]))
        total = page.inner_text("#list .count")
        _show(f"filter {query}", f"{statistics.median(times):.0f} ms (best {min(times):.0f})  [{total}]")


_TIMED = """async ([selector, query]) => {
  const watched = document.querySelector(selector);
  const begun = performance.now();
  const changed = new Promise((done) => {
    new MutationObserver(() => done(performance.now() - begun)).observe(watched, {childList: true});
  });
  if (query == null) move(1); else go(new URLSearchParams(query));
  return await changed;
}"""


def measure_moves(page: Any) -> None:
    """Time `j`, for a reader who looks for half a second at each pair and for one who hurries."""
    page.evaluate("go(new URLSearchParams(''))")
    page.wait_for_timeout(1500)
    for name, pause in (("next pair, half a second each", 500), ("next pair, at once", 0)):
        times = []
        for _ in range(20):
            page.wait_for_timeout(pause)
            times.append(page.evaluate(_TIMED, ["#detail", None]))
        _show(name, f"median {statistics.median(times):.0f} ms, 90 % {sorted(times)[17]:.0f} ms")


def bytes_of_pairs(folder: Path) -> None:
    """Count the bytes that single pairs read, through the app's own file system."""
    sys.path.insert(0, str(SPACE))
    from inspector import heavy
    from inspector.library import SpaceLibrary
    from inspector.pair_index import PairIndex, Query

    from composer_hub.local_hub.server import start_server

    with start_server(folder / "hub") as hub:
        library = SpaceLibrary([f"{REPO}@v1.0.0"], endpoint=hub.endpoint, folder=str(folder / "cache"))
        dataset = library.open(REPO, "v1.0.0", hub.token)
        index = PairIndex(library, dataset, in_background=False)
        num_pages = index.page(Query()).num_pages
        rows = [index.page(Query(page=number * num_pages // 12)).rows[0] for number in range(12)]  # of as many groups
        read, last = [], 0
        for row in rows:
            begun = time.monotonic()
            assert heavy.pair(library, dataset, row)
            read.append((dataset.source.num_bytes - last, time.monotonic() - begun))
            last = dataset.source.num_bytes
        _show("bytes of the first pair, footers included", f"{read[0][0] / 1e6:.2f} MB in {read[0][1] * 1e3:.0f} ms")
        others = sorted(one for one, _ in read[1:])
        _show(
            "bytes of another pair, median / most", f"{statistics.median(others) / 1e6:.2f} / {others[-1] / 1e6:.2f} MB"
        )
        _show("requests per pair", f"{dataset.source.num_requests / len(rows):.1f}")


def _show(name: str, value: str) -> None:
    print(f"{name:<72} {value}", flush=True)


def _rss(pid: int, field: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field)) / 1000


def _disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _is_up(url: str) -> bool:
    try:
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=1).status == 200
    except OSError:
        return False


if __name__ == "__main__":
    {"build": build, "run": run, "bytes": bytes_of_pairs}[sys.argv[1]](Path(sys.argv[2]))
