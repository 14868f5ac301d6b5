"""Error sites in, hints out."""
