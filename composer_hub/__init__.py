"""composer_hub turns agent session logs into a better agent, with the Hugging Face Hub as its only store."""

__version__ = "0.1.0"
