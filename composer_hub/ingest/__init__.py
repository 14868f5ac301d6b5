"""Session files in, `Trace` records out: one reader a harness, then redaction and error sites."""
