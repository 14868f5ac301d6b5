"""Pairs, traces and environments in, a checkpoint and a card out. The only stage that imports torch."""
