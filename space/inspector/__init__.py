"""The inspection Space: published indexes and rows in, escaped HTML and verdicts out. `app.py` serves it."""
