"""Without rollouts: hints on published traces are those of live rollouts, pairs alone are DPO, and a run ends well."""

from __future__ import annotations

import copy
import dataclasses
import math
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from trl import GRPOTrainer  # noqa: E402

from composer_hub import exits  # noqa: E402
from composer_hub.hub import (  # noqa: E402
    Card,
    FolderDestination,
    publish,
)
from composer_hub.pairs.tables import pairs_table  # noqa: E402
from composer_hub.records import Trace  # noqa: E402
from composer_hub.train.batch import HintSite  # noqa: E402
from composer_hub.train.checkpoints import last_complete  # noqa: E402
from composer_hub.train.failure import TrainerError  # noqa: E402
from composer_hub.train.hint_term import TraceLoader  # noqa: E402
from composer_hub.train.metrics import METRICS  # noqa: E402
from composer_hub.train.run.export import RunFacts, Scored, to_trace  # noqa: E402
from composer_hub.train.run.main import main, run  # noqa: E402
from composer_hub.train.run.offline import OfflineTrainer  # noqa: E402
from composer_hub.train.run.options import parse_options  # noqa: E402
from composer_hub.train.teacher import keeping_hidden  # noqa: E402
from composer_hub.train.terms import TermModel  # noqa: E402
from composer_hub.train.tokens import tokenizer_digest  # noqa: E402
from composer_hub.train.trace_sites import Student, TraceEncoder  # noqa: E402
from tests.plugins.training import without_plots  # noqa: E402
from tests.quick import quick  # noqa: E402
from tests.train.runs import config_of, pairs_of, steps_of  # noqa: E402
from tests.train.test_metrics import general  # noqa: E402
from tests.train.test_tokens import desk_pair  # noqa: E402
from tests.train.test_trainer import batch_of, numbers  # noqa: E402


def exported(trainer: Any, *, tokenizer: str = "") -> list[Trace]:
    """Return the rollouts of a trainer's last generation batch as it would publish them."""
    facts = RunFacts("run", "small", "sha", tools=tuple(trainer.hinter.tools), tokenizer=tokenizer)
    traces = []
    for place, (rollout, sites) in enumerate(zip(trainer.last_rollouts, trainer.last_sites, strict=True)):
        prompt = [{"role": "user", "content": trainer._tokenizer.decode(rollout.prompt_ids)[-100:]}]
        scored = Scored(prompt, 0, place, {}, None, hints={site.step: site.hint for site in sites})
        traces.append(to_trace(rollout, scored, facts))
    return traces


def encoder_of(tokenizer: Any, **options: Any) -> TraceEncoder:
    return TraceEncoder.of(tokenizer, Student("small", "qwen"), max_tokens=1024, **options)


def offline_of(world: Any, folder: Path, sites: list[HintSite] | None = None, **options: Any) -> OfflineTrainer:
    """Make an offline trainer; `batch` rows of either kind a micro-batch."""
    model, tokenizer = world
    batch, extra = options.pop("batch", 4), {}
    if "peft_config" in options:
        extra["peft_config"] = options.pop("peft_config")
    if sites:
        options = {"alpha_sdpo": 0.5, "hint_source": "traces"} | options
        extra["traces"] = TraceLoader(sites, batch)
    if options.get("beta_replay"):
        extra["pairs"] = pairs_of(tokenizer, batch_size=batch)
    args = config_of(folder, **options)
    return OfflineTrainer(model=copy.deepcopy(model), args=args, processing_class=copy.deepcopy(tokenizer), **extra)


@pytest.fixture(scope="module")
def live(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A live trainer with one generation batch, that batch, and the same rollouts as published traces."""
    from tests.train.runs import trainer_of

    trainer = trainer_of(world, tmp_path_factory.mktemp("live"), alpha_sdpo=0.5, max_hint_sites=3, logging_steps=100)
    batch = batch_of(trainer)
    return trainer, batch, exported(trainer, tokenizer=tokenizer_digest(trainer._tokenizer))


@pytest.fixture(scope="module")
def sites(live: Any, world: Any) -> list[HintSite]:
    return encoder_of(world[1]).encode(live[2]).sites


def test_an_exported_rollout_gives_the_same_site_as_the_live_run(live: Any, sites: list[HintSite]) -> None:
    expected = [site for row in live[0].last_sites for site in row]
    assert len(sites) == len(expected) > 0
    for ours, theirs in zip(sites, expected, strict=True):
        assert ours.is_exact
        assert ours.hint == theirs.hint
        for name in ("prefix_ids", "hinted_ids", "action_ids"):
            assert getattr(ours, name) == getattr(theirs, name)
        # A better sibling's call is known to the live run alone.
        assert not ours.corrected_ids or ours.corrected_ids == theirs.corrected_ids


def test_the_term_on_exported_rollouts_is_the_live_term(
    live: Any, sites: list[HintSite], world: Any, tmp_path: Path
) -> None:
    trainer, batch, _ = live
    with keeping_hidden(trainer.bare_model) as kept:
        GRPOTrainer._compute_loss(trainer, trainer.model, batch)
    (term,), hidden = trainer.terms, kept[-1][:, -1 - batch["completion_ids"].size(1) : -1]
    values, _ = term.values(TermModel(trainer.bare_model, trainer.teacher), batch, hidden)
    expected = values.sum() / batch["num_hint_items"]
    offline = offline_of(world, tmp_path, sites, batch=len(sites))
    offline.current_gradient_accumulation_steps = 1
    offline.model.train()
    found = offline._compute_loss(offline.model, {}) / offline.args.alpha_sdpo
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    assert found.item() > 0
    for network, term in ((trainer.model, expected), (offline.model, found)):
        network.zero_grad()
        term.backward()
    for one, other in zip(trainer.model.parameters(), offline.model.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-5)


def test_pairs_alone_are_dpo(world: Any, tmp_path: Path) -> None:
    model, tokenizer = world
    strength, weight = 0.3, 0.7
    trainer = offline_of(
        world, tmp_path, beta_replay=weight, replay_strength=strength, max_steps=1, batch=3, learning_rate=0.0
    )
    row = steps_of(trainer)[0]
    losses = []
    for pair in pairs_of(tokenizer, batch_size=3).take():
        logps = []
        for answer in (pair.chosen_ids, pair.rejected_ids):
            ids = torch.tensor([[*pair.prompt_ids, *answer]])
            with torch.no_grad():
                tokens = model(input_ids=ids).logits.log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None])[:, 0]
            logps.append(tokens[-len(answer) :].sum().item())
        margin = strength * ((logps[0] - pair.ref_chosen) - (logps[1] - pair.ref_rejected))
        losses.append(math.log1p(math.exp(-margin)))
    assert row["loss"] == pytest.approx(weight * sum(losses) / 3, rel=1e-4)
    assert row["channel/replay/loss"] == pytest.approx(sum(losses) / 3, rel=1e-4)
    assert not [name for name in row if name.startswith(("reward", "completions", "channel/hint"))]


def test_both_recorded_channels_add_up(sites: list[HintSite], world: Any, tmp_path: Path) -> None:
    def loss(traces: list[HintSite] | None, **options: Any) -> float:
        return steps_of(offline_of(world, tmp_path, traces, max_steps=1, **options))[0]["loss"]

    both = loss(sites, beta_replay=0.3)
    assert both == pytest.approx(loss(sites) + loss(None, beta_replay=0.3), rel=1e-4)


def test_a_live_run_adds_the_term_of_its_traces(make_trainer: Any, trained: Any, sites: list[HintSite]) -> None:
    options = {"alpha_sdpo": 0.5, "hint_source": "traces", "traces": TraceLoader(sites, len(sites)), "max_steps": 1}
    plain, hinted = trained().rows[0], steps_of(make_trainer(**options))[0]
    added = 0.5 * hinted["channel/hint_traces/divergence"]
    assert hinted["loss"] == pytest.approx(plain["loss"] + added, abs=1e-4)
    assert "channel/hint/divergence" not in hinted


def test_hints_of_both_sources_are_two_terms(make_trainer: Any, trained: Any, sites: list[HintSite]) -> None:
    options = {"alpha_sdpo": 0.5, "hint_source": "both", "traces": TraceLoader(sites, len(sites)), "max_steps": 1}
    row = steps_of(make_trainer(**options))[0]
    alone = trained(alpha_sdpo=0.5, max_steps=1).rows[0]
    assert row["loss"] == pytest.approx(alone["loss"] + 0.5 * row["channel/hint_traces/divergence"], abs=1e-4)
    assert row["channel/hint/divergence"] == alone["channel/hint/divergence"]


def test_with_alpha_zero_traces_change_nothing(make_trainer: Any, trained: Any, sites: list[HintSite]) -> None:
    loader = TraceLoader(sites, 2)
    idle = make_trainer(hint_source="both", traces=loader)
    assert numbers(steps_of(idle), "loss", "grad_norm") == numbers(trained().rows, "loss", "grad_norm")
    assert loader.position == 0


@pytest.mark.parametrize("aim", quick(1, ["fork", "all"]))
def test_cutting_the_sites_of_a_step_into_more_pieces_does_not_change_it(
    sites: list[HintSite], world: Any, tmp_path: Path, aim: str
) -> None:
    def cut(site: HintSite, length: int) -> HintSite:
        return dataclasses.replace(site, action_ids=site.action_ids[:length])

    # Twelve sites of uneven length, so that a mean of means would show.
    rows = [cut(sites[number % len(sites)], 3 + number) for number in range(12)]
    found = []
    for pieces in (1, 3, 6):
        shape = {"batch": 12 // pieces, "gradient_accumulation_steps": pieces}
        trainer = offline_of(world, tmp_path, rows, max_steps=1, hint_aim=aim, **shape)
        found.append(numbers(steps_of(trainer), "loss", "grad_norm")[0])
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert found[2] == pytest.approx(found[0], rel=1e-4)


def test_a_site_without_a_correction_has_no_fork_and_no_weight(
    sites: list[HintSite], world: Any, tmp_path: Path
) -> None:
    known = next(site for site in sites if site.at_fork())
    unknown = dataclasses.replace(known, corrected_ids=known.corrected_ids[:0])
    names = ("loss", "grad_norm", "channel/hint_traces/left_out")
    found = [
        numbers(steps_of(offline_of(world, tmp_path, rows, batch=len(rows), max_steps=1, hint_aim="fork")), *names)[0]
        for rows in ([known], [known, unknown], [unknown])
    ]
    assert found[1] == pytest.approx((*found[0][:2], 0.5), rel=1e-4)
    assert found[2] == (0.0, 0.0, 1.0)


def test_a_site_of_a_refused_writer_has_no_weight(sites: list[HintSite], world: Any, tmp_path: Path) -> None:
    first = sites[0]
    other = dataclasses.replace(first, hint=dataclasses.replace(first.hint, writer="other"))
    gated = offline_of(world, tmp_path, [first, other], batch=2, max_steps=1)
    gated.hinter = dataclasses.replace(gated.hinter, refused=frozenset({("other", first.hint.kind)}))
    alone = offline_of(world, tmp_path, [first], batch=1, max_steps=1)
    names = ("loss", "grad_norm")
    assert numbers(steps_of(gated), *names)[0] == pytest.approx(numbers(steps_of(alone), *names)[0], rel=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"teacher": "live", "gradient_checkpointing": True},
        {"bf16": True},
        {"max_steps": -1, "num_train_epochs": 1},
    ],
    ids=lambda options: " ".join(options),
)
def test_offline_channels_run_with(sites: list[HintSite], world: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    trainer = offline_of(world, tmp_path, sites, beta_replay=0.2, **options)
    rows = steps_of(trainer)
    assert len(rows) == 2  # eight pairs, or as many sites and more, four a batch
    assert all(math.isfinite(float(row[name])) for row in rows for name in ("loss", "grad_norm"))
    assert trainer.state.epoch == pytest.approx(1, abs=0.01) or options.get("max_steps") != -1


def test_recorded_sites_log_the_names_of_live_ones(sites: list[HintSite], world: Any, tmp_path: Path) -> None:
    row = steps_of(offline_of(world, tmp_path, sites, max_steps=1, measure_every=1))[0]
    logged = {name.replace("hint_traces", "hint", 1) for name in row if name.startswith("channel/")}
    live = {name for name in METRICS if name.startswith(("channel/hint/", "channel/<term>/"))}
    live -= {"channel/hint/sites_per_rollout", "channel/hint/left_out/<reason>"}
    assert {general(name, ["hint"]) for name in logged} == live


def test_looking_at_recorded_sites_before_training_does_not_change_the_run(
    sites: list[HintSite], world: Any, tmp_path: Path
) -> None:
    looked, plain = (offline_of(world, tmp_path, sites, max_steps=1) for _ in range(2))
    uplifts = looked.preflight(num_batches=2)
    assert len(uplifts) == 8
    names = ("loss", "grad_norm")
    assert numbers(steps_of(looked), *names) == numbers(steps_of(plain), *names)


def test_a_writer_that_the_look_refused_is_left_out(sites: list[HintSite], world: Any, tmp_path: Path) -> None:
    trainer = offline_of(world, tmp_path, sites, max_steps=1)
    trainer.hinter = dataclasses.replace(
        trainer.hinter, refused=frozenset((site.hint.writer, site.hint.kind) for site in sites)
    )
    row = steps_of(trainer)[0]
    assert (row["loss"], row["channel/hint_traces/left_out"]) == (0.0, 1.0)


def test_an_adapter_learns_and_its_base_is_the_teacher(sites: list[HintSite], world: Any, tmp_path: Path) -> None:
    from tests.train.test_teacher import lora

    trainer = offline_of(world, tmp_path, sites, beta_replay=0.2, peft_config=lora())
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    steps_of(trainer)
    changed = {name for name, value in trainer.model.named_parameters() if not torch.equal(value, before[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    assert set(trainer.teacher.values) == {
        name for name, value in trainer.model.named_parameters() if value.requires_grad
    }


def test_it_refuses_to_learn_from_nothing(sites: list[HintSite], world: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="nothing to learn from"):
        offline_of(world, tmp_path)
    with pytest.raises(TrainerError, match="Nothing would be learned"):
        offline_of(world, tmp_path, sites, alpha_sdpo=0.0)
    with pytest.raises(TrainerError, match="pass tools="):
        offline_of(world, tmp_path, sites, hint_source="both")
    with pytest.raises(TrainerError, match="one of rollouts, traces, both"):
        offline_of(world, tmp_path, sites, hint_source="logs")


# -------------------------------------------------------------------------------------------------------- whole runs

OFFLINE = shlex.split(
    "--use_cpu true --bf16 false --gradient_checkpointing false --report_to none --disable_tqdm true --logging_steps 1 "
    "--seed 3 --learning_rate 1e-3 --license apache-2.0 --max_steps 4 --save_steps 2 --gradient_accumulation_steps 2 "
    "--alpha_sdpo 0.5 --hint_source traces --traces me/traces@v1.0.0 "
    "--beta_replay 0.5 --pairs me/pairs@v1.0.0 --train_split all"
)


@pytest.fixture(scope="module")
def shelf(live: Any, world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder destination with traces and pairs, and one finished offline run in `runs/whole`."""
    from composer_hub.hub import Table
    from composer_hub.ingest.dataset import config_features
    from composer_hub.records import to_row

    root = tmp_path_factory.mktemp("shelf")
    where = FolderDestination(root / "hub")
    table = Table("traces", [to_row(trace) for trace in live[2]], config_features()["traces"], "trace_id")
    publish(where, "me/traces", [table], Card("traces", "traces", license="mit", holes={"origin": "", "redaction": ""}))
    rows = [desk_pair(a, b) for a in range(3) for b in range(2)]
    rows.append(dataclasses.replace(rows[0], pair_id="same", rejected=rows[0].chosen))
    card = Card("pairs", "pairs", license="mit", holes={"policy": "", "report": ""})
    publish(where, "me/pairs", [pairs_table(rows, {pair.trace_id: "train" for pair in rows})], card)
    with without_plots():
        run(parse_options(arguments(world, root, "whole")))
    return root


def arguments(world: Any, root: Path, name: str, *more: str) -> list[str]:
    place = ["--model_name_or_path", world[0].name_or_path, "--to", str(root / "hub")]
    return [*OFFLINE, *place, "--output_dir", str(root / "runs" / name), *more]


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


@pytest.mark.usefixtures("no_plots")
def test_an_offline_run_that_was_killed_ends_with_the_weights_of_one_that_was_not(shelf: Path, world: Any) -> None:
    whole, killed = shelf / "runs" / "whole", shelf / "runs" / "killed"
    shutil.copytree(whole, killed)
    shutil.rmtree(killed / "final")
    (killed / "checkpoint-4" / "COMPLETE.json").unlink()  # was being written when the end came
    final = run(parse_options(arguments(world, shelf, "killed", "--resume", "true")))
    expected, got = weights(whole / "final"), weights(final)
    assert all(torch.equal(expected[name], got[name]) for name in expected)


def test_an_offline_card_names_its_data_and_claims_no_rewards(shelf: Path) -> None:
    card = (shelf / "runs" / "whole" / "final" / "README.md").read_text()
    for said in ("on hint, replay", "| traces | dataset | `me/traces`", "exact tokens", "| policy | 0 |", "- dpo"):
        assert said in card
    assert "- grpo" not in card
    assert "rewards above" not in card
    assert not (shelf / "runs" / "whole" / "rollouts").exists()


def test_a_time_budget_ends_an_offline_run_with_a_whole_checkpoint(shelf: Path, world: Any) -> None:
    assert main(arguments(world, shelf, "short", "--max_minutes", "0")) == exits.STOPPED
    assert last_complete(shelf / "runs" / "short") == shelf / "runs" / "short" / "checkpoint-1"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("--alpha_sdpo 0 --beta_replay 0", exits.USAGE, "nothing to learn from"),
        ("--hint_source rollouts", exits.USAGE, "Set --hint_source to traces"),
        ("--hint_source both", exits.USAGE, "needs rollouts"),
        ("--traces me/none@v1.0.0", exits.FAILURE, "no me/none"),
        ("--traces me/pairs@v1.0.0", exits.FAILURE, "no config 'traces'"),
        ("--beta 0.1", exits.USAGE, "beta would do nothing"),
        ("--rollouts_repo me/rollouts", exits.USAGE, "rollouts_repo would do nothing"),
        ("--trace_batch_size 0", exits.USAGE, "trace_batch_size is 1 or more, not 0"),
        ("--max_teacher_tokens 50", exits.FAILURE, "'longer_than_max_teacher_tokens'"),
        ("--max_left_out 0.1", exits.FAILURE, "1 of the 7 pairs of me/pairs (14%) would be left out: same tokens 1"),
        ("--other_families maybe", exits.USAGE, "refuse, leave_out, take"),
    ],
)
def test_an_offline_run_that_cannot_work_is_refused_in_one_sentence(
    shelf: Path, world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, code: int, says: str
) -> None:
    assert main(arguments(world, shelf, "refused", *words.split())) == code
    assert says in capsys.readouterr().err
