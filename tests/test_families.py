"""The family of a model, from its name alone."""

from __future__ import annotations

import pytest

from composer_hub.harnesses import family_of


@pytest.mark.parametrize(("model", "family"), [
    ("claude-opus-4-5-20251101", "anthropic"),
    ("anthropic/claude-sonnet-4.5", "anthropic"),
    ("us.anthropic.claude-3-7-sonnet-20250219-v1:0", "anthropic"),
    ("bedrock/anthropic.claude-v2", "anthropic"),
    ("litellm_proxy/claude-3-5-sonnet", "anthropic"),
    ("gpt-5.4", "openai"),
    ("openai/gpt-oss-120b", "openai"),
    ("o3-mini", "openai"),
    ("o1", "openai"),
    ("azure/gpt4-turbo", "openai"),
    ("gpt-5.1-codex", "openai"),
    ("codex-mini-latest", "openai"),
    ("gemini-2.5-pro", "google"),
    ("google/gemma-3-27b-it", "google"),
    ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek"),
    ("deepseek-r1-distill-qwen-32b", "deepseek"),
    ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen"),
    ("SWE-bench/SWE-agent-LM-32B-qwen2.5", "qwen"),
    ("moonshotai/Kimi-K2-Instruct", "moonshot"),
    ("z-ai/glm-4.6", "zhipu"),
    ("zai-org/GLM-4.5-Air", "zhipu"),
    ("mistralai/Devstral-Small-2507", "mistral"),
    ("mixtral-8x7b", "mistral"),
    ("meta-llama/Llama-4-Maverick", "meta"),
    ("us.meta.llama3-3-70b-instruct-v1:0", "meta"),
    ("MiniMaxAI/MiniMax-M2", "minimax"),
    ("x-ai/grok-code-fast-1", "xai"),
    ("amazon.nova-pro-v1:0", "amazon"),
    ("microsoft/phi-4", "microsoft"),
    ("nvidia/llama-3.3-nemotron-super-49b", "meta"),
    ("my-own-model", ""),
    ("solo1", ""),
    ("<synthetic>", ""),
    ("", ""),
])  # fmt: skip
def test_a_name_tells_its_family_or_nothing(model, family):
    assert family_of(model) == family
