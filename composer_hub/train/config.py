"""The options of a training run beyond TRL's own: those of the terms that come with the trainer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trl import GRPOConfig


@dataclass
class ComposerConfig(GRPOConfig):
    """GRPO's options and those of hints and replay."""

    alpha_sdpo: float = field(default=0.0, metadata={"help": "Weight of the hint channel (0: off)."})
    beta_replay: float = field(default=0.0, metadata={"help": "Weight of the replay channel (0: off)."})
    hint_source: Literal["rollouts", "traces", "both"] = field(
        default="rollouts", metadata={"help": "Source of hint sites: rollouts, traces (published ones) or both."}
    )
    teacher: Literal["fixed", "live"] = field(
        default="fixed", metadata={"help": "Model that reads the hint: fixed or live."}
    )
    hint_divergence: float = field(
        default=0.5, metadata={"help": "Divergence: 0 is KL(teacher, student), 1 the reverse, values between are JSD."}
    )
    hint_aim: Literal["all", "fork"] = field(
        default="all",
        metadata={"help": "Tokens of a failed turn that are learned: all, or fork (those up to where it went wrong)."},
    )
    max_hint_sites: int = field(default=1, metadata={"help": "Hint sites per rollout; the first ones are taken."})
    max_teacher_tokens: int = field(
        default=0,
        metadata={"help": "Longest hinted prompt with its action; longer ones are left out (0: the model's window)."},
    )
    control_hints: bool = field(
        default=False, metadata={"help": "Uninformative hints of the same shape, for ablations."}
    )
    replay_strength: float = field(default=0.1, metadata={"help": "Beta of the preference loss itself."})
    replay_nll_weight: float = field(default=0.0, metadata={"help": "Weight of -log p(chosen) per token."})
    success_reward: float = field(default=1.0, metadata={"help": "Least reward of a rollout that succeeded."})
    measure_every: int = field(
        default=10,
        metadata={"help": "Steps between measurements of uplift and gradient shares (0: none)."},
    )
    optimizer: Literal["optim", "muon"] = field(
        default="optim",
        metadata={
            "help": "Optimizer: optim (the one that --optim names), or muon for the matrices inside the layers with "
            "AdamW for the rest.",
        },
    )
    sync_every: int = field(
        default=0, metadata={"help": "Steps that each rank trains by itself between exchanges (0: DDP, every step)."}
    )
    outer_lr: float = field(default=0.7, metadata={"help": "Learning rate of the step that an exchange takes."})
    outer_momentum: float = field(default=0.9, metadata={"help": "Nesterov momentum of that step."})

    # TRL declares these as any text and refuses a wrong one in the first step.
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"] = field(
        default="dapo", metadata={"help": "Policy loss and its normalization, as GRPOConfig explains them."}
    )
    scale_rewards: Literal["group", "batch", "none"] = field(
        default="group", metadata={"help": "Rewards are divided by the deviation of their group or batch, or not."}
    )
    importance_sampling_level: Literal["token", "sequence"] = field(
        default="token", metadata={"help": "Level of the ratio of new to old policy."}
    )
    vllm_mode: Literal["server", "colocate"] = field(
        default="colocate", metadata={"help": "vLLM on the same GPUs, or in a server of its own."}
    )
