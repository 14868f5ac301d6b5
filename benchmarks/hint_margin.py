"""How a hint moves a real model: towards the action that worked, or towards the one that failed.

In: sessions and a causal language model. Out: one line per writer and kind. The margin of a site is the change of
log p(worked) - log p(failed), in nats, when the hint is read right before the action. A control is the hint of another
session. The worked action is the correction's own call, or else the next success of the same tool.
"""

from __future__ import annotations

import copy
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from composer_hub.actions.action import actions_of
from composer_hub.errors.context import context_of
from composer_hub.errors.find import find_errors
from composer_hub.hints.writers import WRITERS, worked_call, write_hint
from composer_hub.ingest.reading import Reading, ReadOptions
from composer_hub.records import Hint, Message, Step, ToolCall, Trace, canonical_json

SYSTEM = "You are a coding agent. Answer with one tool call: the tool's name and its JSON arguments."
MAX_ACTION_CHARS = 700
MAX_TURNS = 12  # of the context; the oldest are cut
PER_SESSION = 3


@dataclass(frozen=True, slots=True)
class MarginSite:
    """A hint with the context, the failed and the working action as texts."""

    hint: Hint
    context: tuple[tuple[str, str], ...]  # role and text
    failed: str
    worked: str


@dataclass(frozen=True, slots=True)
class SiteMargin:
    """Changes of log p against no hint, in nats, with the hint and with the hint of another session."""

    writer: str
    rule: str
    kind: str
    worked: float
    failed: float
    control: float

    @property
    def margin(self) -> float:
        return self.worked - self.failed


def sites_of(paths: Sequence[str], writers: Sequence[str]) -> Iterator[MarginSite]:
    """Yield the sites at which one of the writers has a hint and a working action is known."""
    for session in Reading(paths, ReadOptions()):
        actions = actions_of(session.trace, session.flags)
        trace = find_errors(session, actions)
        found: dict[str, int] = defaultdict(int)
        for position, step in enumerate(trace.steps):
            for site in step.error_sites:
                if site.blame != "model":
                    continue
                context = context_of(trace, position, site, actions)
                worked = worked_call(context)
                for name in writers if context.call and worked else ():
                    hint = write_hint(context, (WRITERS[name],))
                    if not hint or found[name] == PER_SESSION or not context.call or not worked:
                        continue
                    found[name] += 1
                    failed, right = spelled(context.call), spelled(worked)
                    if failed != right:  # long edits may differ only behind what is read
                        yield MarginSite(hint, as_turns(trace, step), failed, right)
                    break  # the first writer speaks, as in a trace


def spelled(call: ToolCall) -> str:
    shown = call.arguments if isinstance(call.arguments, str) else canonical_json(call.arguments)
    return f"{call.name} {shown}"[:MAX_ACTION_CHARS]


def as_turns(trace: Trace, step: Step) -> tuple[tuple[str, str], ...]:
    indices = [index for start, stop in step.prompt for index in range(start, stop)][-MAX_TURNS:]
    return tuple(_turn(trace.messages[index]) for index in indices)


def _turn(message: Message) -> tuple[str, str]:
    calls = "\n".join(spelled(call) for call in message.tool_calls)
    text = "\n".join(filter(None, (message.content[:4000], calls))) or "."
    return ("assistant" if message.role == "assistant" else "user"), text


def measured(
    sites: Sequence[MarginSite], model_path: str, *, max_context: int = 900, max_action: int = 150
) -> Iterator[SiteMargin]:
    """Yield the margins of the sites under a model."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.cache_utils import DynamicCache

    tokenizer = AutoTokenizer.from_pretrained(model_path)
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32  # few processors have the former
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=dtype).eval()

    def ids_of(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    def prompt(site: MarginSite, hint: str) -> list[int]:
        turns = [("system", SYSTEM), *site.context, *([("user", hint)] if hint else [])]
        talk = [{"role": role, "content": text} for role, text in turns]
        return ids_of(tokenizer.apply_chat_template(talk, add_generation_prompt=True, tokenize=False))

    @torch.no_grad()
    def gains(site: MarginSite, hints: Sequence[str]) -> list[tuple[float, float]]:
        """Return log p of the working and the failed action under each hint; the context is read once."""
        prompts = [prompt(site, hint) for hint in hints]
        same = next(at for at, ids in enumerate(zip(*prompts, strict=False)) if len(set(ids)) > 1)
        start = max(0, same - max_context)
        known = DynamicCache(config=model.config)
        model(input_ids=torch.tensor([prompts[0][start:same]]), past_key_values=known)
        found = []
        for ids in prompts:
            both = []
            for action in (site.worked, site.failed):
                answer = ids_of(action)[:max_action]
                rest = torch.tensor([ids[same:] + answer])
                logits = model(input_ids=rest, past_key_values=copy.deepcopy(known)).logits[0, -len(answer) - 1 : -1]
                logps = logits.float().log_softmax(-1)
                both.append(logps[range(len(answer)), torch.tensor(answer)].sum().item())
            found.append((both[0], both[1]))
        return found

    for site, other in zip(sites, [*sites[1:], *sites[:1]], strict=True):
        (worked, failed), hinted, control = gains(site, ["", f"Hint: {site.hint.text}", f"Hint: {other.hint.text}"])
        yield SiteMargin(
            site.hint.writer, site.hint.rule, site.hint.kind, hinted[0] - worked, hinted[1] - failed,
            (control[0] - worked) - (control[1] - failed),
        )  # fmt: skip


def as_table(margins: Iterable[SiteMargin]) -> str:
    """Return a line per writer and rule, and one for all, with 95 % intervals of the mean."""
    from composer_hub.train.uplift import mean_and_half_interval  # needs torch

    margins = list(margins)
    groups: dict[str, list[SiteMargin]] = defaultdict(list)
    for one in margins:
        groups[f"{one.writer}.{one.rule}, {one.kind}"].append(one)
    lines = [
        f"{'writer, rule, kind':<44}{'sites':>6}{'worked':>9}{'failed':>9}{'margin':>18}{'above 0':>9}{'control':>9}"
    ]
    for name, group in [*sorted(groups.items(), key=lambda item: -len(item[1])), ("all", margins)]:
        count = len(group)
        worked, failed, control = (
            sum(values) / max(1, count)
            for values in zip(*((g.worked, g.failed, g.control) for g in group), strict=True)
        )
        mean, half = mean_and_half_interval([one.margin for one in group])
        above = sum(one.margin > 0 for one in group) / max(1, count)
        margin = f"{mean:+.1f} ± {half:.1f}"
        lines.append(f"{name:<44}{count:>6}{worked:>+9.1f}{failed:>+9.1f}{margin:>18}{above:>9.0%}{control:>+9.1f}")
    return "\n".join(lines)


def run(paths: Sequence[str], model: str, writers: str, num_sites: int, seed: int, out: Path | None) -> None:
    """Draw sites, measure them and print the table."""
    sites = list(sites_of(paths, [name.strip() for name in writers.split(",")]))
    drawn = random.Random(seed).sample(sites, min(num_sites, len(sites)))
    if len(drawn) < 2:
        raise SystemExit(
            f"{len(drawn)} sites with a hint and a working action: too few to measure. Name more sessions."
        )
    margins: list[SiteMargin] = []
    for one in measured(drawn, model):
        margins.append(one)
        if out:
            lines = [{"margin": asdict(one), "site": asdict(site)} for one, site in zip(margins, drawn, strict=False)]
            out.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    print(as_table(margins))
    print(f"{len(drawn)} of {len(sites)} sites.")
