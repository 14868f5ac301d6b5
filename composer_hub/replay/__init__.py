"""Traces and teachers in, votes and preference pairs out."""
