"""Measure which share of the steps of real sessions fits a trainer, whole and as a window.

    python benchmarks/windows.py FOLDER_OF_SESSIONS

The answer of each step is the student's own action. Prints Markdown.
"""

from __future__ import annotations

import sys

from composer_hub.ingest.one_file import ReadOptions
from composer_hub.ingest.prepare import Preparation
from composer_hub.ingest.reading import Reading
from composer_hub.pairs.prompts import read_prompt
from composer_hub.pairs.rows import published_action, published_tools
from composer_hub.pairs.windows import window_of

LIMITS = (2048, 4096, 8192, 16384, 32768)


def main() -> None:
    lengths: list[int] = []
    fitting = dict.fromkeys(LIMITS, 0)
    for session in Reading(sys.argv[1:], ReadOptions(transform=Preparation(None))):
        trace = session.trace
        tools = published_tools(trace)
        for step in trace.steps:
            prompt, action = read_prompt(trace, step), published_action(trace.messages[step.action])
            lengths.append(window_of(prompt, [action], tools, max_tokens=0)[1])
            for limit in LIMITS:
                fitting[limit] += window_of(prompt, [action], tools, max_tokens=limit)[1] <= limit
    lengths.sort()
    total = len(lengths)
    print(f"{total:,} steps; median {lengths[total // 2]:,} estimated tokens, p90 {lengths[9 * total // 10]:,}.\n")
    print("| limit, tokens | whole prompts that fit | windows that fit |\n| ---: | ---: | ---: |")
    for limit in LIMITS:
        print(f"| {limit:,} | {sum(one <= limit for one in lengths) / total:.0%} | {fitting[limit] / total:.0%} |")


if __name__ == "__main__":
    main()
