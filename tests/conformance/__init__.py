"""huggingface_hub's own test suite, unchanged, against the embedded Hub: `make conformance`."""
