"""One reader per harness: session files in, sessions out."""
