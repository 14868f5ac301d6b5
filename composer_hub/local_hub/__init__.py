"""The embedded Hub: the protocol of huggingface.co on loopback, for stock clients, without an account."""
