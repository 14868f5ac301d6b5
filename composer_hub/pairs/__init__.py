"""Votes in, preference pairs and their report out."""
