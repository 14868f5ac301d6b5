"""From a draft in a browser to the next version of the dataset."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.utils import httpx
from inspector import verdicts

from composer_hub import hub, pairs
from composer_hub.ingest.verdicts import VERDICTS as HINT_VERDICTS
from composer_hub.ingest.verdicts import read_verdicts as read_hint_verdicts
from composer_hub.local_hub.server import ServerProcess
from composer_hub.pairs.verdicts import VERDICTS
from composer_hub.records import Pair, Trace
from tests.space import hostile
from tests.space.conftest import publish_pairs, publish_traces, serving

SAME = {"sec-fetch-site": "same-origin"}
FACTS = {"repo": "me/p", "revision": "v1", "reviewer": "ada", "now": "2026-11-22T10:00:00+00:00"}


def row(pair: str, verdict: str, reviewer: str, at: str = "2026") -> dict[str, str]:
    return {"pair_id": pair, "site_id": "", "verdict": verdict, "reviewer": reviewer, "created_at": at}


def test_the_space_writes_the_words_that_the_package_reads() -> None:
    assert set(verdicts.PAIR_VERDICTS) == set(VERDICTS)
    assert set(verdicts.HINT_VERDICTS) == set(HINT_VERDICTS)


@pytest.mark.parametrize(
    "draft",
    [
        {"verdict": "good_hint"},
        {"verdict": "edit_hint", "edited_hint": " Use ls. "},
        {"verdict": "wrong_blame", "blame": "env"},
    ],
)
def test_the_package_reads_what_the_space_writes_on_hints(draft: dict[str, str], tmp_path: Path) -> None:
    row = verdicts.check({"id": "s:1", **draft}, **FACTS)
    (tmp_path / "v.jsonl").write_text(json.dumps(row) + "\n")
    (read,) = read_hint_verdicts(tmp_path / "v.jsonl")
    assert (read.site_id, read.reviewer, read.verdict) == ("s:1", "ada", draft["verdict"])
    assert (read.edited_hint, read.blame) == (draft.get("edited_hint", "").strip(), draft.get("blame", ""))


@pytest.mark.parametrize(
    "draft",
    [
        None,
        {},
        {"id": "x" * 201, "verdict": "accept"},
        {"id": "x", "verdict": "maybe"},
        {"id": "x", "verdict": "edit"},
        {"id": "x", "verdict": "edit_hint", "edited_hint": " "},
        {"id": "x", "verdict": "wrong_blame", "blame": "moon"},
        {"id": "x", "verdict": "edit", "edited": [{"name": "Bash", "arguments": "ls"}]},
        {"id": "x", "verdict": "edit", "edited": [{"name": "", "arguments": {}}]},
        {"id": "x", "verdict": "edit", "edited": [{"name": "Bash", "arguments": {"a": "b" * 200_000}}]},
    ],
)
def test_a_draft_that_is_no_verdict_is_refused(draft: Any) -> None:
    with pytest.raises(verdicts.BadVerdict):
        verdicts.check(draft, **FACTS)


def test_every_published_verdict_has_the_same_columns_and_a_note_without_lone_surrogates() -> None:
    one = verdicts.check({"id": "a", "verdict": "accept", "note": "x\ud800" + "y" * 900}, **FACTS)
    other = verdicts.check({"id": "s:1", "verdict": "wrong_blame", "reviewer": "eve"}, **FACTS)
    assert list(one) == list(other)
    assert len(one["note"].encode()) <= 500
    assert (other["target"], other["reviewer"], other["pair_id"]) == ("hint", "ada", "")


def test_the_last_verdict_of_a_reviewer_counts_and_reviewers_who_differ_make_a_pair_disputed() -> None:
    rows = [
        row("p", "accept", "ada", "1"),
        row("p", "reject", "ada", "2"),
        row("q", "accept", "ada"),
        row("q", "reject", "me"),
    ]
    assert verdicts.states(verdicts.latest(rows)) == {"p": ("rejected", "|ada|"), "q": ("disputed", "|ada|me|")}


def test_agreement_of_reviewers_is_a_share_and_krippendorffs_alpha() -> None:
    both = [("a", "accept", "accept"), ("b", "reject", "reject"), ("c", "accept", "reject"), ("d", "accept", "accept")]
    rows = [row(pair, verdict, name) for pair, one, two in both for name, verdict in (("ada", one), ("me", two))]
    found = verdicts.agreement([*rows, row("e", "accept", "ada")])
    assert (found["n"], found["reviewers"], found["agreement"]) == (4, 2, 0.75)
    # Of 8 values 5 are accept and 3 reject. The values of c differ, which are two of the 8 ordered pairs.
    assert found["alpha"] == pytest.approx(1 - (8 - 1) * 2 / (8**2 - 5**2 - 3**2))
    assert verdicts.agreement([])["agreement"] is None


def test_alpha_is_that_of_krippendorffs_own_example_with_four_observers() -> None:
    """Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), section D, nominal data: 0.743."""
    values = (
        "1 2 3 3 2 1 4 1 2 . . .",
        "1 2 3 3 2 2 4 1 2 5 . 3",
        ". 3 3 3 2 3 4 2 2 5 1 .",
        "1 2 3 3 2 4 4 1 2 5 1 .",
    )
    rows = [
        row(f"unit {unit}", value, f"observer {number}")
        for number, line in enumerate(values)
        for unit, value in enumerate(line.split())
        if value != "."
    ]
    found = verdicts.agreement(rows)
    assert (found["n"], found["reviewers"]) == (11, 4)
    assert found["alpha"] == pytest.approx(0.743, abs=5e-4)


def test_a_blind_choice_becomes_what_the_reader_saw_on_that_side() -> None:
    by_side = {True: 0, False: 0}
    for number in range(64):
        id = f"pair {number}"
        first = verdicts.chosen_first("ada", id)
        by_side[first] += 1
        choices = {
            side: verdicts.check({"id": id, "verdict": side, "shuffle": "ada", "seen": False}, **FACTS)
            for side in ("first", "second")
        }
        assert choices["first"]["verdict"] == ("accept" if first else "swap")
        assert choices["second"]["verdict"] == ("swap" if first else "accept")
        assert choices["first"]["blind"] is True
    assert min(by_side.values()) > 16
    assert {verdicts.chosen_first(name, "pair 1") for name in ("ada", "me", "eve", "bob", "")} == {True, False}
    seen = verdicts.check({"id": "a", "verdict": "first", "shuffle": "ada", "seen": True}, **FACTS)
    assert seen["blind"] is False
    with pytest.raises(verdicts.BadVerdict):
        verdicts.check({"id": "a", "verdict": "first"}, **FACTS)


def test_a_reason_is_one_of_a_list_and_belongs_to_a_rejection() -> None:
    for reason in verdicts.REASONS:
        assert verdicts.check({"id": "a", "verdict": "reject", "reason": reason}, **FACTS)["reason"] == reason
        assert verdicts.check({"id": "a", "verdict": "accept", "reason": reason}, **FACTS)["reason"] == ""
    for reason in ("rm -rf", ["equal"], None, {"path": "x"}):
        assert verdicts.check({"id": "a", "verdict": "reject", "reason": reason}, **FACTS)["reason"] == ""


def test_a_verdict_file_of_anyone_is_read_without_trust(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    lines = [
        b'{"verdict_id": 3}',
        b"not json",
        b"[]",
        b'{"verdict_id": "v", "verdict": "rm -rf"}',
        b"\xff",
        b"[" * 100_000,
        b'{"verdict_id": "v", "verdict": "accept", "pair_id": "\\ud800", "note": null, "evil": 1}',
    ]
    file.write_bytes(b"\n".join(lines))
    (found,) = verdicts.read_file(str(file))
    assert "evil" not in found
    assert found["note"] == ""
    assert found["pair_id"] == "?"


@pytest.mark.slow
def test_a_forged_verdict_changes_neither_the_space_nor_the_next_version(
    hub_server: ServerProcess, where: hub.HubDestination, tmp_path: Path
) -> None:
    repo = "me/forged"
    traces = [hostile.trace(number) for number in range(40, 43)]
    commit = publish_traces(where, "me/forged-traces", traces, {})
    made = [hostile.pairs_of(one, number)[0] for number, one in enumerate(traces, 40)]
    publish_pairs(where, repo, made, [], hub.Parent("traces", "me/forged-traces", commit))
    owner, eve = (HfApi(endpoint=hub_server.endpoint, token=f"hf_test_{name}") for name in ("me", "eve"))
    for name in (repo, "me/forged-traces"):
        owner.update_repo_settings(name, repo_type="dataset", private=False)
    facts = {"repo": repo, "revision": "v1.0.0", "reviewer": "ada", "now": "2099-01-01T00:00:00+00:00"}
    forged = verdicts.check({"id": made[0].pair_id, "verdict": "reject"}, **facts)
    operation = CommitOperationAdd("verdicts/ada/20990101.jsonl", json.dumps(forged).encode())
    with serving(hub_server, f"{repo}@v1.0.0", "hf_test_ada", tmp_path / "ada") as address:
        decided = [
            {"id": pair.pair_id, "verdict": word} for pair, word in zip(made, ("accept", "reject"), strict=False)
        ]
        body = {"dataset": repo, "revision": "v1.0.0", "verdicts": decided}
        httpx.get(f"{address}part?want=list", trust_env=False, timeout=600)
        answer = httpx.post(f"{address}verdicts", json=body, headers=SAME, trust_env=False, timeout=600)
    owner.merge_pull_request(repo, answer.json()["num"], repo_type="dataset")
    pull = eve.create_commit(repo, [operation], commit_message="Add verdicts", repo_type="dataset", create_pr=True)
    refusal = f"eve sent it with pull request {pull.pr_num}, but it names 'ada' as reviewer"
    for merged in (False, True):
        if merged:
            owner.merge_pull_request(repo, pull.pr_num, repo_type="dataset")
        with serving(hub_server, f"{repo}@v1.0.0", "hf_test_me", tmp_path / f"me {merged}") as address:
            accepted = until_marked(f"{address}part?want=list&review=accepted")
            rejected = httpx.get(f"{address}part?want=list&review=rejected", trust_env=False, timeout=600)
            overview = httpx.get(f"{address}part?view=overview", trust_env=False, timeout=600)
        assert made[0].pair_id in accepted
        assert made[0].pair_id not in rejected.text
        assert refusal in html.unescape(overview.json()["detail"])
    command = [sys.executable, "-m", "composer_hub", "pairs", "apply-verdicts", f"{repo}@v1.0.0", "--repo", repo]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    env |= {"COMPOSER_HUB_HOME": str(hub_server.root), "HF_HOME": str(tmp_path / "home")}
    for words in (["--public", "--dry-run"], ["--public"]):
        run = subprocess.run([*command, *words], env=env, capture_output=True, text=True, timeout=600)
        assert run.returncode == 0, run.stderr
        assert refusal in run.stderr
        assert "accept 1" in run.stderr
        assert "superseded" not in run.stderr
    version = hub.load(where, f"{repo}@main")
    assert {pair.pair_id for pair in version.records(Pair, "default")} == {made[0].pair_id, made[2].pair_id}
    card = where.fetch(repo, version.revision, "README.md")
    assert card is not None
    assert "Not counted: 1 file" in card.read_text()


def test_merged_verdicts_on_hints_become_the_next_version_of_the_traces(
    hub_server: ServerProcess, where: hub.HubDestination, tmp_path: Path
) -> None:
    repo = "team/hints"
    traces = [hostile.trace(number) for number in range(50, 54)]
    publish_traces(where, repo, traces, {})
    owner = HfApi(endpoint=hub_server.endpoint, token="hf_test_me")
    sites = [f"{trace.steps[0].step_id}:1" for trace in traces]
    drafts = [
        {"id": sites[0], "verdict": "bad_hint"},
        {"id": sites[1], "verdict": "edit_hint", "edited_hint": "Read the file first."},
        {"id": sites[2], "verdict": "wrong_blame", "blame": "env"},
        {"id": sites[3], "verdict": "good_hint"},
    ]
    sent = verdicts.submit(HfApi(endpoint=hub_server.endpoint), repo, "v1.0.0", drafts, "hf_test_ada")
    owner.merge_pull_request(repo, sent["num"], repo_type="dataset")
    command = [sys.executable, "-m", "composer_hub", "traces", "apply-verdicts", f"{repo}@v1.0.0", "--repo", repo]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    env |= {"COMPOSER_HUB_HOME": str(hub_server.root), "HF_HOME": str(tmp_path / "home")}
    # The same verdicts on the version that they made change nothing.
    for words, code in ((["--public"], 4), (["--dry-run"], 0), ([], 0), ([], 5)):
        run = subprocess.run([*command, *words], env=env, capture_output=True, text=True, timeout=600)
        assert run.returncode == code, run.stderr
    after = {trace.trace_id: trace.steps[0] for trace in hub.load(where, f"{repo}@main").records(Trace, "traces")}
    bad, edited, blamed, good = (after[trace.trace_id] for trace in traces)
    assert [hint.text for step in (bad, edited, blamed) for hint in step.hints] == ["Read the file first."]
    assert [step.error_sites[0].blame for step in (bad, edited, blamed, good)] == ["model", "model", "env", "model"]
    assert good == traces[3].steps[0]


def until_marked(url: str) -> str:
    """Return a list with a review filter: the pairs are marked once the copy of the index in memory is ready."""
    until = time.monotonic() + 120
    while True:
        text = str(httpx.get(url, trust_env=False, timeout=600).json()["list"])
        if "No pairs" not in text or time.monotonic() > until:
            return text
        time.sleep(0.2)


def test_merged_verdicts_become_the_next_version_and_their_files_load(
    hub_server: ServerProcess, where: hub.HubDestination, tmp_path: Path
) -> None:
    repo = "team/folded"
    traces = [hostile.trace(number) for number in range(1, 6)]
    commit = publish_traces(where, "team/folded-traces", traces, {})
    made = [hostile.pairs_of(one, number) for number, one in enumerate(traces, 10)]
    publish_pairs(where, repo, [pair for pair, _ in made], [], hub.Parent("traces", "team/folded-traces", commit))
    ids = [pair.pair_id for pair, _ in made]
    edited = [{"name": "Bash", "arguments": {"command": "make test"}}]
    drafts = [
        {"id": ids[0], "verdict": "accept"},
        {"id": ids[1], "verdict": "reject", "note": "both are wrong"},
        {"id": ids[2], "verdict": "edit", "edited": edited},
        {"id": ids[3], "verdict": "swap"},
    ]
    with serving(hub_server, f"{repo}@v1.0.0", "hf_test_ada", tmp_path / "ada") as address:
        httpx.get(f"{address}part?want=list", trust_env=False)
        body = {"dataset": repo, "revision": "v1.0.0", "verdicts": drafts}
        answer = httpx.post(f"{address}verdicts", json=body, headers=SAME, trust_env=False, timeout=600)
        assert answer.status_code == 200, answer.text
        assert answer.json()["count"] == 4
        foreign = httpx.post(f"{address}verdicts", json=body, headers={"sec-fetch-site": "cross-site"}, trust_env=False)
        assert foreign.status_code == 403
        other = body | {"dataset": "team/pairs"}
        assert httpx.post(f"{address}verdicts", json=other, headers=SAME, trust_env=False).status_code in (403, 404)
    owner = HfApi(endpoint=hub_server.endpoint, token="hf_test_me")
    owner.merge_pull_request(repo, answer.json()["num"], repo_type="dataset")
    source = hub.load(where, f"{repo}@v1.0.0")
    reviewed, refused = pairs.merged_verdicts(source)
    assert not refused
    draft, counts = pairs.reviewed_draft(source, reviewed)
    assert counts == {"accept": 1, "reject": 1, "edit": 1, "swap": 1}
    version = hub.publish(where, repo, draft.tables, draft.card, lineage=draft.lineage)
    after = {pair.step_id: pair for pair in hub.load(where, f"{repo}@{version.tag}").records(Pair, "default")}
    steps = [pair.step_id for pair, _ in made]
    assert set(after) == {steps[0], steps[2], steps[3], steps[4]}
    assert after[steps[2]].chosen[0].tool_calls[0].arguments == {"command": "make test"}
    card = where.fetch(repo, version.revision, "README.md")
    assert card is not None
    assert "config_name: verdicts" not in card.read_text()  # `load_dataset` reads all configs of a set as Parquet
    files = [path for path in where.files(repo, version.revision) if path.startswith("verdicts/ada/")]
    local = [str(where.fetch(repo, version.revision, path)) for path in files]
    loaded = load_dataset("json", data_files=local, split="train", cache_dir=str(tmp_path / "cache"))
    assert sorted(loaded["verdict"]) == ["accept", "edit", "reject", "swap"]
