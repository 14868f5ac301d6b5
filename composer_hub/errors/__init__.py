"""Sessions in, traces with error sites out."""
