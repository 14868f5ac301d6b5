"""The memory that a training run needs per GPU, by formula and before anything is loaded.

In: the shape of a model (its `config.json`), the options of a run, and how its processes are launched. Out: one line
per part in GiB, and what to change if the sum does not fit. Measured ones are in `docs/results/training_cost.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from composer_hub import exits

GIB = 2**30
PROMPT = 1024  # tokens assumed before the first turn, because tasks are not read
TORCH_TILES = 8.25  # float32 tiles that the kernel's backward holds where Triton does not run: on a CPU
LOGITS_A_CHUNK = 32_768  # columns of the buffer in TRL's log-prob kernel; its rows are at most 4,096
CONTEXT_GIB = 1.0  # CUDA's context, NCCL's buffers and fragmentation; torch does not count it
FITS = 0.95  # share of a GPU that a plan may fill


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a causal language model."""

    num_layers: int
    hidden: int
    inner: int  # of one token's MLP, all experts that it visits together
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab: int
    tied: bool = True
    num_experts: int = 0  # per layer; 0 if dense
    expert_inner: int = 0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ModelShape:
        """Read a `config.json`."""
        text = config.get("text_config") or config
        heads = text["num_attention_heads"]
        experts = text.get("num_experts") or text.get("num_local_experts") or text.get("n_routed_experts") or 0
        expert_inner = text.get("moe_intermediate_size") or text["intermediate_size"]
        visited = text.get("num_experts_per_tok") or 1
        return cls(
            num_layers=text["num_hidden_layers"],
            hidden=text["hidden_size"],
            inner=expert_inner * visited if experts else text["intermediate_size"],
            num_heads=heads,
            num_kv_heads=text.get("num_key_value_heads") or heads,
            head_dim=text.get("head_dim") or text["hidden_size"] // heads,
            vocab=text["vocab_size"],
            tied=config.get("tie_word_embeddings", text.get("tie_word_embeddings", False)),
            num_experts=experts,
            expert_inner=expert_inner if experts else 0,
        )

    @property
    def attention(self) -> int:
        """Weights of a layer's attention."""
        return self.hidden * self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)

    @property
    def layer(self) -> int:
        """Weights of a layer."""
        mlp = 3 * self.hidden * (self.num_experts * self.expert_inner if self.num_experts else self.inner)
        return self.attention + mlp + self.hidden * (2 + self.num_experts)

    @property
    def head(self) -> int:
        """Weights of the output layer."""
        return self.vocab * self.hidden

    @property
    def weights(self) -> int:
        """Weights of the model."""
        return self.num_layers * self.layer + self.head * (1 if self.tied else 2) + self.hidden

    def adapter(self, rank: int) -> int:
        """Weights of a LoRA adapter on every linear layer but the head; the experts of a MoE have none."""
        heads, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        mlp = 0 if self.num_experts else 3 * (self.hidden + self.inner)
        return self.num_layers * rank * (2 * (self.hidden + heads) + 2 * (self.hidden + kv) + mlp)

    def saved(self) -> int:
        """Numbers that one token leaves in a layer for its backward."""
        heads, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        return 8 * self.hidden + 4 * heads + 4 * kv + 4 * self.inner

    def cached(self) -> int:
        """Numbers in the key-value cache per token."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim


# Public models that presets name, so that a plan needs no network.
KNOWN = {
    "Qwen/Qwen3-0.6B": ModelShape(28, 1024, 3072, 16, 8, 128, 151_936),
    "Qwen/Qwen3-1.7B": ModelShape(28, 2048, 6144, 16, 8, 128, 151_936),
    "Qwen/Qwen3-4B": ModelShape(36, 2560, 9728, 32, 8, 128, 151_936),
    "Qwen/Qwen3-8B": ModelShape(36, 4096, 12_288, 32, 8, 128, 151_936, tied=False),
    "Qwen/Qwen3-14B": ModelShape(40, 5120, 17_408, 40, 8, 128, 151_936, tied=False),
    "small": ModelShape(2, 96, 384, 4, 2, 24, 693),
    "small-beginner": ModelShape(2, 96, 128, 4, 2, 24, 709),
    "small-coding": ModelShape(2, 96, 384, 4, 2, 24, 800),
    "Qwen/Qwen3-32B": ModelShape(64, 5120, 25_600, 64, 8, 128, 151_936, tied=False),
}


@dataclass(frozen=True)
class Setup:
    """The options that memory depends on; their names and defaults are those of the trainer."""

    dtype: str = "float32"
    use_peft: bool = False
    load_in_4bit: bool = False
    lora_r: int = 16
    bf16: bool = True
    per_device_train_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    steps_per_generation: int | None = None
    max_completion_length: int = 512
    gradient_checkpointing: bool = True
    beta: float = 0.0
    alpha_sdpo: float = 0.0
    teacher: str = "fixed"
    beta_replay: float = 0.0
    pair_batch_size: int = 2
    max_pair_tokens: int = 4096
    use_vllm: bool = False
    vllm_mode: str = "colocate"
    vllm_gpu_memory_utilization: float = 0.3
    optimizer: str = "optim"
    # How it is launched.
    num_processes: int = 1
    sharding: str = ""  # "", zero1, zero2, zero3 or fsdp2

    @classmethod
    def of(cls, options: Mapping[str, Any], launch: Mapping[str, Any]) -> Setup:
        """Read a run's options and an accelerate config."""
        stage = (launch.get("deepspeed_config") or {}).get("zero_stage")
        kind = {"FSDP": "fsdp2", "DEEPSPEED": f"zero{stage}"}.get(str(launch.get("distributed_type")), "")
        known = {field.name for field in fields(cls)}
        own = {name: _checked(name, value) for name, value in options.items() if name in known and value is not None}
        num_processes = int(launch.get("num_processes") or 1)
        return cls(**own | {"num_processes": num_processes, "sharding": kind if num_processes > 1 else ""})

    @property
    def share(self) -> int:
        """How many GPUs share the weights."""
        return self.num_processes if self.sharding in ("fsdp2", "zero3") else 1


def _checked(name: str, value: Any) -> Any:
    kind = {field.name: type(field.default) for field in fields(Setup)}[name]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind in (int, float) and not (is_number and value >= 0):
        raise exits.UsageError(f"{name} is a number of 0 or more, not {value!r}.")
    if kind is bool and not isinstance(value, bool):
        raise exits.UsageError(f"{name} is true or false, not {value!r}.")
    return value


@dataclass(frozen=True)
class MemoryPart:
    """One line of a plan."""

    name: str
    gib: float
    why: str


def estimate(shape: ModelShape, setup: Setup, *, gpu_gib: float = 80.0, on_gpu: bool = True) -> list[MemoryPart]:
    """Return the memory of one GPU by part; activations are those of the fullest moment."""
    counted = [rule(shape, setup) for rule in (_weights, _gradients, _optimizer, _teacher, _head)]
    counted.append(_activations(shape, setup))
    if setup.use_vllm and setup.vllm_mode == "colocate":
        share = setup.vllm_gpu_memory_utilization
        counted.append(MemoryPart("vLLM", share * gpu_gib, f"vllm_gpu_memory_utilization {share:g} of {gpu_gib:g} GiB"))
    if on_gpu:
        counted.append(MemoryPart("context", CONTEXT_GIB, "CUDA, NCCL and fragmentation"))
    else:
        copies = (TORCH_TILES - 1) * 4 * _tile(shape, setup)
        counted.append(
            MemoryPart("head on a CPU", copies / GIB, "copies of a chunk of logits in the kernel's backward")
        )
    return [part for part in counted if part.gib > 0]


def total(parts: list[MemoryPart]) -> float:
    """Return the sum of the parts in GiB."""
    return sum(part.gib for part in parts)


def _trained(shape: ModelShape, setup: Setup) -> int:
    return shape.adapter(setup.lora_r) if setup.use_peft else shape.weights


def _bytes(setup: Setup) -> int:
    """Bytes per stored weight: FSDP2 keeps trained ones in float32, DeepSpeed in bf16 beside its own in float32."""
    if not setup.use_peft and setup.sharding == "fsdp2":
        return 4
    return 2 if setup.dtype != "float32" or (setup.bf16 and setup.sharding.startswith("zero")) else 4


def _weights(shape: ModelShape, setup: Setup) -> MemoryPart:
    size = _bytes(setup)
    if setup.load_in_4bit:
        whole = 0.56 * (shape.weights - shape.head) + 2.0 * shape.head  # quantized in blocks, the embedding is not
        why = "4-bit layers, 2 bytes for the embedding"
    else:
        whole = float(size * shape.weights)
        why = f"{size} bytes x {shape.weights / 1e9:.2f} B"
    if setup.use_peft:
        whole += 4 * _trained(shape, setup)
        why += f" + adapter of {_trained(shape, setup) / 1e6:.0f} M"
    whole /= setup.share
    if setup.share > 1:
        gathered = 2 * (2 * shape.layer + shape.head)
        whole, why = whole + gathered, f"{why}, over {setup.share} GPUs, + two layers and the head while they are read"
    elif setup.bf16 and size == 4:
        whole += 2 * shape.layer
        why += " + a layer in bf16"
    return MemoryPart("weights", whole / GIB, why)


def _gradients(shape: ModelShape, setup: Setup) -> MemoryPart:
    over = setup.num_processes if setup.sharding in ("fsdp2", "zero3", "zero2") else 1
    size = 4 if setup.use_peft else _bytes(setup)
    return MemoryPart(
        "gradients", size * _trained(shape, setup) / over / GIB, f"{size} bytes per trained weight{_over(over)}"
    )


def _optimizer(shape: ModelShape, setup: Setup) -> MemoryPart:
    over = setup.num_processes if setup.sharding else 1
    # DeepSpeed keeps separate float32 weights beside those in bf16.
    size = 12 if setup.sharding.startswith("zero") else 8
    if setup.optimizer == "muon":
        inside = shape.num_layers * (shape.layer - 2 * shape.hidden)
        whole = 4 * inside + 8 * (shape.weights - inside)
        return MemoryPart(
            "optimizer", whole / over / GIB, f"Muon: 4 bytes in layers, Adam: 8 bytes elsewhere{_over(over)}"
        )
    return MemoryPart("optimizer", size * _trained(shape, setup) / over / GIB, f"Adam: {size} bytes{_over(over)}")


def _over(count: int) -> str:
    return f", over {count} GPUs" if count > 1 else ""


def _teacher(shape: ModelShape, setup: Setup) -> MemoryPart:
    """Count the hint's teacher and the policy term's reference, which may be one model."""
    # The values are kept before DeepSpeed makes the weights bf16.
    wide = 4 if setup.use_peft or setup.dtype == "float32" or setup.sharding == "fsdp2" else 2
    size = wide * _trained(shape, setup)
    keeps = bool(setup.alpha_sdpo) and setup.teacher != "live"
    refers = bool(setup.beta) and not setup.use_peft
    shared = keeps and refers and setup.teacher == "fixed" and not setup.sharding
    count = keeps + refers - shared
    whole = count * size / setup.share
    why = " and ".join(
        name for name, is_on in (("the hint's teacher", keeps), ("the reference of beta", refers)) if is_on
    )
    if shared:
        why += ", one model"
    if keeps and setup.share > 1 and not setup.use_peft:
        whole += 2 * shape.head
    if refers and setup.sharding == "fsdp2":
        whole += 2 * shape.weights  # TRL shards its reference as one group, which a forward gathers as a whole
        why += ", which is gathered as a whole"
    return MemoryPart("teacher", whole / GIB, why)


def _head(shape: ModelShape, setup: Setup) -> MemoryPart:
    """Count the kernels' buffers and, if the head is trained, the gradient that they sum up in float32."""
    buffers = _tile(shape, setup) * (2 if setup.bf16 else 4)
    gradient = 0 if setup.use_peft else 4 * shape.head * (2 if setup.alpha_sdpo or setup.beta_replay else 1)
    return MemoryPart(
        "head", (buffers + gradient) / GIB, "chunks of logits" + (" and float32 gradient" if gradient else "")
    )


def _tile(shape: ModelShape, setup: Setup) -> int:
    """Return the numbers in one chunk of logits."""
    rows = min(4096, setup.per_device_train_batch_size * setup.max_completion_length)
    return rows * min(LOGITS_A_CHUNK, shape.vocab)


def _activations(shape: ModelShape, setup: Setup) -> MemoryPart:
    tokens = setup.per_device_train_batch_size * (PROMPT + setup.max_completion_length)
    pairs = 2 * setup.pair_batch_size * setup.max_pair_tokens if setup.beta_replay else 0
    # Under autocast over float32 weights the residual stream is float32, everything inside a layer mostly bf16.
    is_half = setup.bf16 and (setup.dtype != "float32" or setup.sharding == "fsdp2")
    residual = (2 if is_half else 4) * shape.hidden
    inside = (2 if setup.bf16 else 4) * shape.saved()
    if setup.gradient_checkpointing:
        update = shape.num_layers * residual * (tokens + pairs) + inside * max(tokens, pairs)
        why = f"{tokens + pairs:,} tokens, checkpointed"
    else:
        update = shape.num_layers * inside * (tokens + pairs)
        why = f"{tokens + pairs:,} tokens, all kept: gradient_checkpointing is off"
    if setup.use_vllm:
        return MemoryPart("activations", update / GIB, why)
    pieces = setup.steps_per_generation or setup.gradient_accumulation_steps
    generating = pieces * tokens * shape.cached() * (2 if setup.bf16 else 4)
    if generating <= update:
        return MemoryPart("activations", update / GIB, why)
    rollouts = pieces * setup.per_device_train_batch_size
    return MemoryPart("activations", generating / GIB, f"key-value cache of {rollouts} rollouts while generating")


# ------------------------------------------------------------------------------------------------------ what to change

Advice = Callable[[ModelShape, Setup], Mapping[str, Any] | None]


def _checkpoint(shape: ModelShape, setup: Setup) -> Mapping[str, Any] | None:
    return None if setup.gradient_checkpointing else {"gradient_checkpointing": True}


def _one_pair(shape: ModelShape, setup: Setup) -> Mapping[str, Any] | None:
    return {"pair_batch_size": 1} if setup.beta_replay and setup.pair_batch_size > 1 else None


def _smaller_batch(shape: ModelShape, setup: Setup) -> Mapping[str, Any] | None:
    size, pieces = setup.per_device_train_batch_size, setup.gradient_accumulation_steps
    if size == 1:
        return None
    return {"per_device_train_batch_size": 1, "gradient_accumulation_steps": pieces * size}


def _fewer_at_once(shape: ModelShape, setup: Setup) -> Mapping[str, Any] | None:
    pieces = setup.steps_per_generation or setup.gradient_accumulation_steps
    return None if setup.use_vllm or pieces == 1 else {"use_vllm": True, "vllm_mode": "server"}


def _shorter_pairs(shape: ModelShape, setup: Setup) -> Mapping[str, Any] | None:
    return {"max_pair_tokens": 2048} if setup.beta_replay and setup.max_pair_tokens > 2048 else None


def _share_weights(shape: ModelShape, setup: Setup) -> Mapping[str, Any] | None:
    return {"sharding": "fsdp2"} if setup.num_processes > 1 and setup.share == 1 and not setup.use_peft else None


def _live_teacher(shape: ModelShape, setup: Setup) -> Mapping[str, Any] | None:
    keeps = setup.alpha_sdpo and setup.teacher != "live" and not setup.use_peft
    return {"teacher": "live"} if keeps else None


def _adapter(shape: ModelShape, setup: Setup) -> Mapping[str, Any] | None:
    return None if setup.use_peft else {"use_peft": True, "dtype": "bfloat16"}


def _four_bits(shape: ModelShape, setup: Setup) -> Mapping[str, Any] | None:
    return {"load_in_4bit": True} if setup.use_peft and not setup.load_in_4bit and not setup.sharding else None


# In the order in which they are tried: first what does not change what is learned.
ADVICE: tuple[Advice, ...] = (
    _checkpoint, _one_pair, _smaller_batch, _fewer_at_once, _share_weights, _shorter_pairs, _live_teacher, _adapter,
    _four_bits,
)  # fmt: skip


def remedies(shape: ModelShape, setup: Setup, *, gpu_gib: float) -> Iterator[tuple[Mapping[str, Any], float]]:
    """Yield options to change and the sum with all of them so far, until it fits; only those that help."""
    now = total(estimate(shape, setup, gpu_gib=gpu_gib))
    for advice in ADVICE:
        if now <= FITS * gpu_gib:
            return
        change = advice(shape, setup)
        if change is None:
            continue
        changed = replace(setup, **change)
        after = total(estimate(shape, changed, gpu_gib=gpu_gib))
        if after < 0.98 * now:
            setup, now = changed, after
            yield change, now
