"""The hint and replay channels in other trainers: one module per framework, each imported only by its users.

`verl` and `prime_rl` add the channels to those trainers, `verifiers` serves environments to it, and `channels` has the
losses on log-probs that they share with the TRL trainer. `verl_parquet` writes datasets for verl.
"""
