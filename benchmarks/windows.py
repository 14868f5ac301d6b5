"""Measure which share of the steps of real sessions fits a trainer, and what their windows still show.

    python benchmarks/windows.py FOLDER_OF_SESSIONS

The answer of each step is the student's own action. Prints Markdown.
"""

from __future__ import annotations

import sys
from collections import Counter

from composer_hub.ingest.one_file import ReadOptions
from composer_hub.ingest.prepare import Preparation
from composer_hub.ingest.reading import Reading
from composer_hub.pairs.evidence import needs_of
from composer_hub.pairs.prompts import read_prompt
from composer_hub.pairs.rows import published_action, published_tools
from composer_hub.pairs.windows import estimate, is_supported, place_of, window_of

LIMITS = (2048, 4096, 8192, 16384, 32768)


def main() -> None:
    lengths: list[int] = []
    counts = {limit: Counter[str]() for limit in LIMITS}
    whole: Counter[str] = Counter()
    for session in Reading(sys.argv[1:], ReadOptions(transform=Preparation(None))):
        trace = session.trace
        tools = published_tools(trace)
        for step in trace.steps:
            prompt, action = read_prompt(trace, step), published_action(trace.messages[step.action])
            if not action.tool_calls:
                continue
            lengths.append(estimate(prompt, tools, [action]))
            texts = [need for need in needs_of(action) if not need.is_word]
            shown = is_supported(prompt, action, prompt)
            whole["supported"] += shown
            whole["edits"] += bool(texts)
            whole["shown"] += bool(texts) and all(place_of(text, prompt) is not None for text in texts)
            if "--unsupported" in sys.argv and not shown:
                missing = [need.lines for need in needs_of(action) if place_of(need, prompt) is None]
                print(trace.source, trace.trace_id[:8], step.index, missing, str(action.tool_calls)[:200])
            for limit, count in counts.items():
                window = window_of(prompt, [action], tools, lambda *view: estimate(*view, [action]) <= limit)  # noqa: B023
                fits = estimate(window.messages, window.tools, [action]) <= limit
                count["fit"] += fits
                count["supported"] += fits and is_supported(window.messages, action, prompt)
                seen = [place_of(text, window.messages) is not None for text in texts]
                count["shown"] += fits and bool(texts) and all(seen)
                count["shortened"] += window.num_shortened > 0
    lengths.sort()
    total = len(lengths)
    print(f"{total:,} steps; median {lengths[total // 2]:,} estimated tokens, p90 {lengths[9 * total // 10]:,}.")
    print(f"Whole prompts show what {whole['supported']:,} of the actions need, and all texts that "
          f"{whole['shown']:,} of {whole['edits']:,} edits replace.\n")  # fmt: skip
    heads = ("limit, tokens", "whole prompts that fit", "windows that fit", "and show what the action needs",
             "edits whose texts they show", "with shortened messages")  # fmt: skip
    print(f"| {' | '.join(heads)} |\n|{' ---: |' * len(heads)}")
    for limit, count in counts.items():
        fit = sum(one <= limit for one in lengths) / total
        texts = f"{count['shown']:,} of {whole['edits']:,}"
        print(f"| {limit:,} | {fit:.0%} | {count['fit'] / total:.0%} | {count['supported'] / total:.0%} | {texts} "
              f"| {count['shortened'] / total:.0%} |")  # fmt: skip


if __name__ == "__main__":
    main()
