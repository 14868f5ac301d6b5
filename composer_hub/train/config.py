"""The options of a training run that TRL does not have: those of the two added channels."""

from __future__ import annotations

from dataclasses import dataclass, field

from trl import GRPOConfig


@dataclass
class ComposerConfig(GRPOConfig):
    """GRPO's options and those of the two added channels."""

    alpha_sdpo: float = field(default=0.0, metadata={"help": "Weight of the hint channel; 0 turns it off."})
    beta_replay: float = field(default=0.0, metadata={"help": "Weight of the replay channel; 0 turns it off."})
    hint_source: str = field(
        default="rollouts",
        metadata={"help": "Where hint sites come from: rollouts, traces (published ones) or both."},
    )
    channel_warmup_steps: int = field(default=0, metadata={"help": "Steps over which both weights rise from 0."})
    teacher: str = field(default="fixed", metadata={"help": "Who reads the hint: fixed, ema or live."})
    teacher_ema_rate: float = field(default=0.01, metadata={"help": "How fast the ema teacher follows the student."})
    hint_divergence: float = field(
        default=0.5, metadata={"help": "0 is KL(teacher, student), 1 the reverse, between JSD."}
    )
    hint_temperature: float = field(default=1.0, metadata={"help": "Temperature of both sides of the divergence."})
    hint_top_k: int | None = field(default=None, metadata={"help": "Keep the teacher's k likeliest tokens and a tail."})
    hint_token_clip: float | None = field(default=None, metadata={"help": "Clip each token's divergence at this."})
    hint_gate: str = field(
        default="none",
        metadata={
            "help": "Weigh each hint token by a sigmoid of the gap in log p: objects (towards 1 where the teacher "
            "believes less in it than the student), endorses (where it believes more), or none."
        },
    )
    hint_gate_sharpness: float = field(default=1.0, metadata={"help": "Factor of the gap in the gate's sigmoid."})
    hint_success_weight: bool = field(
        default=False,
        metadata={"help": "Weigh a rollout's sites by sqrt(p (1 - p)), p the share of its group that succeeded."},
    )
    hint_ratio_clip: float | None = field(
        default=None,
        metadata={
            "help": "Weigh each hint token by how much likelier it is now than when it was sampled, clipped at this; "
            "only batches that are used for several updates know."
        },
    )
    hint_anchor_kl: float = field(
        default=0.0,
        metadata={
            "help": "Weight of KL(start of the run, policy) on the first token of each turn without a hint site; "
            "0 turns it off."
        },
    )
    success_reward: float = field(default=1.0, metadata={"help": "A rollout with at least this reward succeeded."})
    max_hint_sites: int = field(default=1, metadata={"help": "Hint sites per rollout; the first pays best."})
    max_hint_chars: int = field(default=600, metadata={"help": "Longer hints are cut at a line."})
    hint_min_uplift: float | None = field(
        default=None,
        metadata={
            "help": "Leave a site out unless its hint makes the failed action less likely, and the corrected one, "
            "where known, likelier, by this many nats."
        },
    )
    hint_uplift_every: int = field(
        default=10, metadata={"help": "Measure what the hints do in every n-th generation batch; 0 never."}
    )
    hint_writer_min_uplift: float | None = field(
        default=None,
        metadata={
            "help": "Leave out the sites of a writer, at a kind of error, whose mean uplift over its last measured "
            "sites is below this; it is measured on and may come back."
        },
    )
    hint_writer_window: int = field(default=64, metadata={"help": "Measured sites that a writer is judged by."})
    hint_writer_min_sites: int = field(default=8, metadata={"help": "Fewer measured sites refuse no writer."})
    max_teacher_tokens: int = field(default=4096, metadata={"help": "A hinted prompt longer than this is left out."})
    control_hints: bool = field(
        default=False, metadata={"help": "Hints of the same shape that say nothing, for ablations."}
    )
    replay_loss: str = field(default="sigmoid", metadata={"help": "sigmoid or ipo."})
    replay_strength: float = field(default=0.1, metadata={"help": "The preference loss's own beta."})
    replay_label_smoothing: float = field(default=0.0, metadata={"help": "Share of pairs believed to be wrong."})
    replay_robust: bool = field(
        default=False, metadata={"help": "Correct the loss for that share instead of smoothing its labels."}
    )
    replay_nll_weight: float = field(default=0.0, metadata={"help": "Weight of -log p(chosen) a token."})
    replay_length_normalised: bool = field(default=False, metadata={"help": "Compare log-probs a token."})
    grad_share_every: int = field(
        default=10,
        metadata={"help": "Measure each channel's share of the gradient in every n-th step; 0 never."},
    )
    known_good_turns: int = field(
        default=8,
        metadata={"help": "Turns of the run's first successful rollouts that forgetting is measured on; 0 none."},
    )
    known_good_every: int = field(
        default=10, metadata={"help": "Measure them in every n-th generation batch; 0 never."}
    )
    token_diagnostics: int = field(
        default=0,
        metadata={
            "help": "Rollouts of each generation batch and rank whose export has divergence, uplift and advantage "
            "token by token."
        },
    )
