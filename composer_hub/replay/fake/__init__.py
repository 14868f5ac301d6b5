"""Scripted teachers and a loopback server for them, for the demo and for tests."""
