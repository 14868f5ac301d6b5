"""What redaction finds and what it keeps, measured on planted values."""
