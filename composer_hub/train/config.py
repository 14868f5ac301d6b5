"""The options of a training run beyond TRL's own: those of the two added channels."""

from __future__ import annotations

from dataclasses import dataclass, field

from trl import GRPOConfig


@dataclass
class ComposerConfig(GRPOConfig):
    """GRPO's options and those of the two added channels."""

    alpha_sdpo: float = field(default=0.0, metadata={"help": "Weight of the hint channel (0: off)."})
    beta_replay: float = field(default=0.0, metadata={"help": "Weight of the replay channel (0: off)."})
    hint_source: str = field(
        default="rollouts", metadata={"help": "Source of hint sites: rollouts, traces (published ones) or both."}
    )
    channel_warmup_steps: int = field(default=0, metadata={"help": "Steps over which both weights rise from 0."})
    teacher: str = field(default="fixed", metadata={"help": "Model that reads the hint: fixed, ema or live."})
    teacher_ema_rate: float = field(default=0.01, metadata={"help": "Share of the student in each ema update."})
    hint_divergence: float = field(
        default=0.5, metadata={"help": "Divergence: 0 is KL(teacher, student), 1 the reverse, values between are JSD."}
    )
    hint_token_clip: float | None = field(default=None, metadata={"help": "Upper bound of each token's divergence."})
    max_hint_sites: int = field(default=1, metadata={"help": "Hint sites per rollout; the first ones are taken."})
    max_teacher_tokens: int = field(
        default=0,
        metadata={"help": "Longest hinted prompt with its action; longer ones are left out (0: the model's window)."},
    )
    control_hints: bool = field(
        default=False, metadata={"help": "Uninformative hints of the same shape, for ablations."}
    )
    replay_loss: str = field(default="sigmoid", metadata={"help": "Preference loss: sigmoid or ipo."})
    replay_strength: float = field(default=0.1, metadata={"help": "Beta of the preference loss itself."})
    replay_nll_weight: float = field(default=0.0, metadata={"help": "Weight of -log p(chosen) per token."})
    success_reward: float = field(default=1.0, metadata={"help": "Least reward of a rollout that succeeded."})
    measure_every: int = field(
        default=10,
        metadata={"help": "Steps between measurements of uplift, gradient shares and forgetting (0: none)."},
    )
