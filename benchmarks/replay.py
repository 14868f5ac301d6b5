"""Replay against plain AsyncInferenceClient with gather: requests/s, CPU per request, dollars per trace, memory.

    python benchmarks/replay.py [--traces 12] [--steps 20] [--lanes 256] [--stream 600]

The embedded server runs in a separate process. Both clients ask the same teacher the same questions, and CPU is that of
the client's process. Read the ratio and the difference; absolute figures depend on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from huggingface_hub import AsyncInferenceClient

from composer_hub.money import NANO
from composer_hub.pairs.prompts import paired
from composer_hub.records import Trace
from composer_hub.replay.client import connections
from composer_hub.replay.collecting import collect
from composer_hub.replay.fake import ScriptedTeacher, TeacherServer, listen, serve
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ReplayOptions
from composer_hub.replay.prices import per_million
from composer_hub.replay.prompts import Prompts
from composer_hub.replay.teachers import Teacher, fetch_models, resolve
from tests.replay.sample import trace_of

OPTIONS = ReplayOptions(order="all", audit=0, repeat=0)
PRICE = per_million("5", "25", "0.50", "6.25", stamp="benchmark")


def start_server(latency_s: float) -> tuple[Any, str]:
    """Serve one dear, caching teacher from another process; return the process and its URL."""
    listener = listen()
    teachers = TeacherServer([ScriptedTeacher("dear", "scripted", 0.9, PRICE, latency_s=latency_s)])
    process = multiprocessing.get_context("fork").Process(target=serve, args=(teachers, listener), daemon=True)
    process.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    listener.close()
    return process, url


def teacher_at(url: str, lanes: int) -> Teacher:
    (teacher,) = resolve(
        [{"at": f"{url}#dear", "cache_key": "session_id", "max_tokens": 200, "max_concurrency": lanes}],
        list_models=fetch_models,
        environ={},
    )
    return teacher


def billed(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url.replace("/v1", "/billing")) as response:
        return json.load(response)


def gathered(traces: list[Trace], teacher: Teacher) -> int:
    """Ask everything at once, as a script with gather would."""

    async def ask() -> int:
        # The pool is as large as the lanes', so that only the way of asking differs.
        async with connections([teacher]), AsyncInferenceClient(base_url=teacher.base_url, api_key="none") as client:
            calls = [
                client.chat_completion(
                    paired(prompts.of(step).chat), model=teacher.model, max_tokens=200, tools=prompts.tools
                )
                for prompts in map(Prompts, traces)
                for step in prompts.trace.steps
            ]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            return sum(not isinstance(answer, BaseException) for answer in answers)

    return asyncio.run(ask())


def in_lanes(traces: list[Trace], teacher: Teacher) -> int:
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.sqlite", cap=10**6 * NANO) as ledger:
        return sum(1 for _ in collect(traces, [teacher], ledger, OPTIONS, environ={}))


def measured(
    name: str, ask: Callable[[list[Trace], Teacher], int], traces: list[Trace], lanes: int, latency: float
) -> dict:
    process, url = start_server(latency)
    try:
        teacher = teacher_at(url, lanes)
        wall, cpu = time.perf_counter(), time.process_time()
        requests = ask(traces, teacher)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        bill = billed(url)
    finally:
        process.kill()
        process.join()
    model = bill["models"]["dear"]
    return {
        "client": name,
        "requests": requests,
        "requests_per_s": round(requests / wall, 1),
        "cpu_ms_per_request": round(1000 * cpu / requests, 2),
        "cached_share": round(model["cached_tokens"] / model["prompt_tokens"], 3),
        "usd_per_trace": round(bill["billed_nano"] / NANO / len(traces), 4),
    }


def stream(num_traces: int, lanes: int) -> dict:
    """Replay many traces from a stream and return this process's peak memory."""

    def traces() -> Iterator[Trace]:
        return (trace_of(2, name=f"s{number}", growth=4000, system="S" * 8000) for number in range(num_traces))

    process, url = start_server(0.0)
    try:
        votes = in_lanes(traces(), teacher_at(url, lanes))  # type: ignore[arg-type]
    finally:
        process.kill()
        process.join()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"streamed_traces": num_traces, "votes": votes, "peak_rss_mb": round(peak)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=12)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lanes", type=int, default=256)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--stream", type=int, default=600)
    options = parser.parse_args()
    print(json.dumps(stream(options.stream, options.lanes)))
    traces = [
        trace_of(options.steps, name=f"t{number}", system="S" * 7500, growth=2200) for number in range(options.traces)
    ]
    plain = measured("AsyncInferenceClient + gather", gathered, traces, options.lanes, options.latency)
    lanes = measured("composer_hub lanes", in_lanes, traces, options.lanes, options.latency)
    for row in (plain, lanes):
        print(json.dumps(row))
    extra = lanes["cpu_ms_per_request"] - plain["cpu_ms_per_request"]
    print(
        json.dumps(
            {
                "extra_cpu_ms_per_request": round(extra, 2),
                "cost_ratio": round(plain["usd_per_trace"] / lanes["usd_per_trace"], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
