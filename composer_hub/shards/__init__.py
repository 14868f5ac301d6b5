"""A stage over shards: freeze a plan, run its shards anywhere, and merge their results once.

from composer_hub import ingest, shards

sharding = shards.Sharding(Path("staging"), shards.in_processes(4), num_shards=64)
run = ingest.ingest(["~/sessions"], sharding=sharding)
"""

from composer_hub.shards.plan import Input, Plan, ShardError, Staging, balanced, freeze
from composer_hub.shards.processes import in_processes
from composer_hub.shards.run import Executor, Plans, Sharding, ShardProgress, carry_out, here, run_shard, status

__all__ = [
    "Executor",
    "Input",
    "Plan",
    "Plans",
    "ShardError",
    "ShardProgress",
    "Sharding",
    "Staging",
    "balanced",
    "carry_out",
    "freeze",
    "here",
    "in_processes",
    "run_shard",
    "status",
]
