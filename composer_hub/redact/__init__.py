"""Traces in, traces without secrets and personal data out."""
