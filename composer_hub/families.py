"""From a model's name to the family that made it: teachers of the student's own family do not vote on its steps."""

from __future__ import annotations

import functools
import re

FAMILIES: tuple[tuple[str, str], ...] = (
    # Fine-tunes name their base, so a maker's own line comes before the lines it builds on (deepseek-r1-distill-qwen
    # speaks like deepseek, its teacher; hermes-llama like llama).
    ("anthropic", r"claude|anthropic"),
    ("deepseek", r"deepseek"),
    ("moonshot", r"kimi|moonshot|composer[-_ ]?2\.5"),
    ("zhipu", r"\bglm|chatglm|zhipu|z-ai/|\bzai-org/|codegeex"),
    ("minimax", r"minimax|\babab"),
    ("xai", r"\bgrok|\bx-ai/|\bxai/"),
    ("google", r"gemini|gemma|\bpalm\b|\bbison|codey"),
    ("qwen", r"qwen|qwq|\bqvq|tongyi"),
    ("mistral", r"mi[sx]tral|codestral|devstral|magistral|ministral|pixtral"),
    ("openai", r"\bgpt|chatgpt|\bo[1345](-|\b)|codex|davinci|openai/|computer-use-preview"),
    ("meta", r"llama|\bmeta/|meta-llama"),
    ("cohere", r"command-(a|r|light|nightly)|\bcohere|\baya\b|c4ai"),
    ("microsoft", r"\bphi-?[1-5]|\bwizardlm|\bmai-"),
    ("ibm", r"granite"),
    ("nvidia", r"nemotron"),
    ("amazon", r"\bnova-|amazon\.|titan"),
    ("ai21", r"jamba|\bj2-"),
    ("bigcode", r"starcoder|octocoder"),
    ("allenai", r"\bolmo|tulu"),
    ("huggingface", r"smollm"),
    ("bytedance", r"doubao|\bseed-|seed-oss|bytedance"),
    ("baidu", r"ernie"),
    ("tencent", r"hunyuan"),
    ("xiaomi", r"\bmimo"),
    ("stepfun", r"\bstep-?[123]"),
    ("01ai", r"\byi-"),
    ("tii", r"falcon"),
    ("perplexity", r"sonar"),
    ("inclusionai", r"\bling-|\bring-"),
    ("meituan", r"longcat"),
    ("arcee", r"\barcee|trinity-"),
    ("liquid", r"\blfm"),
    ("servicenow", r"apriel"),
)

_RULES = tuple((family, re.compile(pattern)) for family, pattern in FAMILIES)


@functools.lru_cache(maxsize=1024)
def family_of(model: str) -> str:
    """Return the family of a model name, router alias or deployment id, or "" if it is unknown."""
    name = model.lower().replace("_", "-")
    return next((family for family, rule in _RULES if rule.search(name)), "")
