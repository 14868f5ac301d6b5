"""One module per command group. It parses, calls one stage and prints."""
