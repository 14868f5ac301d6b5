"""placeholder until ingest.families is merged"""


def family_of(model: str) -> str:
    name = model.lower()
    for part, family in (
        ("claude", "anthropic"),
        ("gpt", "openai"),
        ("gemini", "google"),
        ("grok", "xai"),
        ("deepseek", "deepseek"),
        ("glm", "zai"),
        ("kimi", "moonshot"),
        ("minimax", "minimax"),
        ("qwen", "qwen"),
        ("llama", "meta"),
        ("mistral", "mistral"),
    ):
        if part in name:
            return family
    return "unknown"
