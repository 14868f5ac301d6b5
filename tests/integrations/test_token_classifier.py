"""`ingest --reader`: a real model class with few random weights, through the code that loads any model."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    OpenAIPrivacyFilterConfig,
    OpenAIPrivacyFilterForTokenClassification,
    PreTrainedTokenizerFast,
)

from composer_hub import exits, ingest
from composer_hub.cli.models import opened_reader
from composer_hub.hub import PublishOptions, destination, embedded_hub, publish_model
from composer_hub.integrations.token_classifier import TokenClassifier, open_tagger
from composer_hub.local_hub.server import ServerProcess
from composer_hub.records import Message, Trace
from composer_hub.redact import Redactor
from composer_hub.redact.reader import Reader

SESSIONS = Path(__file__).parents[1] / "fixtures/harnesses/claude_code"
TEXT = "Ask Mara Öztürk, 3 Elm Street.\nShe is in at nine."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the class and the labels of openai/privacy-filter, and a tokenizer of bytes."""
    torch.manual_seed(0)
    config = OpenAIPrivacyFilterConfig(
        num_hidden_layers=2, num_local_experts=2, num_experts_per_tok=1, hidden_size=32, intermediate_size=32,
        head_dim=8,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=257, pad_token_id=256, eos_token_id=256,
        max_position_embeddings=64, sliding_window=16,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )  # fmt: skip
    model = OpenAIPrivacyFilterForTokenClassification(config)
    assert sum(weights.numel() for weights in model.parameters()) < 40_000
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_of = Tokenizer(models.BPE(vocab={**{sign: i for i, sign in enumerate(letters)}, "<pad>": 256}, merges=[]))
    bytes_of.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_of.decoder = decoders.ByteLevel()
    made = tmp_path_factory.mktemp("model") / "tiny"
    model.save_pretrained(made)
    PreTrainedTokenizerFast(tokenizer_object=bytes_of, pad_token="<pad>", eos_token="<pad>").save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def tagger(folder: Path) -> TokenClassifier:
    return open_tagger(destination(str(folder.parent)), str(folder))


def always(tagger: TokenClassifier, label: str) -> TokenClassifier:
    """Let the head of the model give every token one label, whatever its weights are."""
    chosen = tagger._model.config.label2id[label]
    with torch.no_grad():
        tagger._model.score.weight.zero_()
        tagger._model.score.bias.copy_(torch.nn.functional.one_hot(torch.tensor(chosen), len(tagger._label_of)))
    return tagger


def changed(folder: Path, tmp_path: Path, **config: object) -> Path:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    path = copy / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return copy


def test_spans_are_places_in_their_text_also_over_windows(tagger: TokenClassifier) -> None:
    long = "Zoë und Jörg. " * 40  # more tokens than the model has places
    for text, spans in zip([TEXT, long, ""], tagger([TEXT, long, ""]), strict=True):
        assert all(0 <= span.start < span.end <= len(text) for span in spans)
        assert all(a.end <= b.start or a.label != b.label for a, b in itertools.pairwise(spans))
        assert {span.label for span in spans} <= set(tagger.labels)


def test_a_batch_gives_what_each_text_gives_alone(tagger: TokenClassifier) -> None:
    texts = ["a", TEXT, "host = db-7", "x" * 200]
    assert tagger(texts) == [tagger([text])[0] for text in texts]


def test_windows_leave_no_token_out(folder: Path) -> None:
    tagger = always(open_tagger(destination(str(folder.parent)), str(folder)), "S-private_person")
    long = "Zoë und Jörg. " * 40
    assert [(span.start, span.end) for span in tagger([long])[0]] == [(0, len(long))]
    ordinary = always(tagger, "O")
    assert ordinary([TEXT, long]) == [[], []]


def test_what_the_model_finds_is_replaced_and_the_card_has_its_commit(
    folder: Path, hub_server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSER_HUB_STATE", str(tmp_path / "state"))
    hub = embedded_hub(hub_server)
    files = {path.name: path for path in folder.iterdir()}
    published = publish_model(hub, "me/tiny-filter", files, tag="v1", title="A tiny filter")
    said: list[str] = []
    tagger = always(open_tagger(hub, "me/tiny-filter"), "S-private_person")
    reader = Reader(tagger, said.append)
    assert reader.id == f"hf:me/tiny-filter@{published.revision}"

    place = destination(str(tmp_path / "datasets"))
    run = ingest.ingest(
        [SESSIONS], ingest.IngestOptions(workers=1, scan=False), destination=place, repo="me/traces", reader=reader
    )
    assert [sentence for sentence in said if reader.id in sentence and "tokens per second" in sentence] == said
    assert len(said) == 1
    assert run.rules()["reader:name"] > 0
    run.publish(PublishOptions())
    card = (tmp_path / "datasets/me/traces/README.md").read_text()
    assert f"read by the model `{reader.id}`" in card


def test_a_reader_changes_only_what_it_finds(tagger: TokenClassifier) -> None:
    trace = Trace("t", "x", "s", (Message("user", "call Mara"),), ())
    redactor = Redactor(b"salt")
    found = Reader(always(tagger, "B-private_person")).found(trace)
    assert found == [("NAME", "call Mara", "reader:name")]
    assert redactor.without_found(trace, found).messages[0].content == redactor.placeholder("NAME", "call Mara")
    assert Reader(always(tagger, "O")).found(trace) == []


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, "tiny|copy is Qwen3ForCausalLM, which tags no tokens"),
        ({"architectures": None}, "tags no tokens"),
        ({"id2label": {i: f"B-x{i}" for i in range(33)}}, "labels without a meaning here .*x0"),
    ],
)
def test_a_model_that_is_no_reader_is_refused_with_a_sentence(
    config: dict[str, object], sentence: str, folder: Path, tmp_path: Path
) -> None:
    copy = changed(folder, tmp_path, **config)
    with pytest.raises(exits.UsageError, match=sentence):
        Reader(open_tagger(destination(str(tmp_path)), str(copy)))


def test_weights_in_a_pickle_are_refused(folder: Path, tmp_path: Path) -> None:
    copy = changed(folder, tmp_path)
    (copy / "model.safetensors").unlink()
    torch.save({}, copy / "pytorch_model.bin")
    with pytest.raises(exits.UsageError, match=r"no config\.json with safetensors weights"):
        open_tagger(destination(str(tmp_path)), str(copy))


def test_a_model_without_a_head_in_its_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    copy = changed(folder, tmp_path)
    weights = load_file(copy / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("score")}
    save_file(kept, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(exits.UsageError, match=r"lacks weights \(score"):
        open_tagger(destination(str(tmp_path)), str(copy))


@pytest.mark.parametrize("name", ["openai/privacy-filter", "hf:", "file:x"])
def test_the_option_names_its_form(name: str) -> None:
    with pytest.raises(exits.UsageError, match="write hf:ORG/MODEL"):
        opened_reader(name, print)


def test_unredacted_traces_have_no_reader(
    tagger: TokenClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSER_HUB_STATE", str(tmp_path))
    with pytest.raises(exits.UsageError, match="reads what redaction left"):
        ingest.ingest([SESSIONS], ingest.IngestOptions(redact=False, workers=1), reader=Reader(tagger))
