"""The added channels in trainers that are not ours: verl, prime-rl, and environments for verifiers."""
