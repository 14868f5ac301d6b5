"""What stock clients do, as a script: run by test_clients.py in a process whose environment names the test Hub.

Each function is one flow; its assertions are the claims. Arguments: the name of a flow and of its repository.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path


def commits_and_files(repo: str) -> None:
    from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi, hf_hub_download

    api = HfApi()
    for kind in ("model", "dataset", "space"):
        sdk = "static" if kind == "space" else None
        url = api.create_repo(repo, repo_type=kind, private=True, space_sdk=sdk)
        assert api.create_repo(repo, repo_type=kind, exist_ok=True, space_sdk=sdk) == url
        assert api.repo_info(repo, repo_type=kind).private
        api.upload_file(path_or_fileobj=b"# card\n", path_in_repo="docs/a.md", repo_id=repo, repo_type=kind)
        path = hf_hub_download(repo, "docs/a.md", repo_type=kind)
        assert Path(path).read_bytes() == b"# card\n"
    head = api.repo_info(repo).sha
    large = bytes(range(256)) * 20_000
    operations = [CommitOperationAdd("w/model.bin", large), CommitOperationAdd("w/config.json", b"{}")]
    made = api.create_commit(repo, operations, commit_message="two", commit_description="why", parent_commit=head)
    again = api.create_commit(repo, [CommitOperationAdd("w/model.bin", large)], commit_message="same")
    assert again.oid == made.oid
    copies = [CommitOperationCopy("w/model.bin", "c/model.bin"), CommitOperationCopy("w/config.json", "c/config.json")]
    api.create_commit(repo, [*copies, CommitOperationDelete("w/", is_folder=True)], commit_message="move")
    assert sorted(api.list_repo_files(repo)) == [".gitattributes", "c/config.json", "c/model.bin", "docs/a.md"]
    assert Path(hf_hub_download(repo, "c/model.bin")).read_bytes() == large
    [info] = api.get_paths_info(repo, ["c/model.bin"], expand=True)
    assert info.lfs.size == info.size == len(large)
    assert info.last_commit.title == "move"
    assert [commit.title for commit in api.list_repo_commits(repo)][:2] == ["move", "two"]
    api.create_branch(repo, branch="side")
    api.create_tag(repo, tag="v1", tag_message="first")
    api.create_tag(repo, tag="v1", exist_ok=True)
    refs = api.list_repo_refs(repo)
    assert [ref.name for ref in refs.branches] == ["main", "side"]
    assert [ref.ref for ref in refs.tags] == ["refs/tags/v1"]
    api.super_squash_history(repo, branch="main", commit_message="one")
    assert len(api.list_repo_commits(repo)) == 1
    assert len(api.list_repo_commits(repo, revision="v1")) > 1
    assert [item.filename for item in api.list_lfs_files(repo)] == ["c/model.bin"]
    api.permanently_delete_lfs_files(repo, list(api.list_lfs_files(repo)))
    assert "c/model.bin" not in api.list_repo_files(repo)
    api.update_repo_settings(repo, private=False, gated="auto")
    assert api.repo_info(repo).gated == "auto"
    api.auth_check(repo, write=True)
    api.move_repo(repo, repo + "-b")
    assert api.repo_info(repo).id == repo + "-b"
    api.delete_repo(repo + "-b")
    assert not api.repo_exists(repo + "-b")


def folders(repo: str) -> None:
    from huggingface_hub import HfApi, HfFileSystem, snapshot_download

    api = HfApi()
    api.create_repo(repo)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(40):
            (Path(folder) / f"d{number % 4}").mkdir(exist_ok=True)
            (Path(folder) / f"d{number % 4}" / f"f{number}.txt").write_text(str(number))
        (Path(folder) / "big.bin").write_bytes(b"x" * 300_000)
        api.upload_folder(repo_id=repo, folder_path=folder)
        copy = Path(snapshot_download(repo))
        for path in Path(folder).rglob("*"):
            assert path.is_dir() or path.read_bytes() == (copy / path.relative_to(folder)).read_bytes()
    files = HfFileSystem()
    assert len(files.glob(f"{repo}/d*/*.txt")) == 40
    assert files.ls(f"{repo}/d1", detail=False)[0].startswith(f"{repo}/d1/")
    with files.open(f"{repo}/new/a.txt", "w") as file:
        file.write("hello")
    assert files.cat(f"{repo}/new/a.txt") == b"hello"
    with files.open(f"{repo}/big.bin", "rb") as file:
        file.seek(299_990)
        assert file.read() == b"x" * 10
    files.mv(f"{repo}/new/a.txt", f"{repo}/new/b.txt")
    files.rm(f"{repo}/d1", recursive=True)
    assert files.exists(f"{repo}/new/b.txt")
    assert not files.exists(f"{repo}/d1")


def dataset(repo: str) -> None:
    from datasets import Dataset, load_dataset
    from huggingface_hub import HfApi

    rows = {"id": list(range(50)), "text": [f"row {i}" for i in range(50)]}
    Dataset.from_dict(rows).push_to_hub(repo, private=True)
    HfApi().create_tag(repo, tag="v1", repo_type="dataset")
    head = HfApi().repo_info(repo, repo_type="dataset").sha
    Dataset.from_dict(rows).push_to_hub(repo)
    assert HfApi().repo_info(repo, repo_type="dataset").sha == head
    Dataset.from_dict({"id": [1], "text": ["changed"]}).push_to_hub(repo)
    Dataset.from_dict({"x": [1]}).push_to_hub(repo, "other", split="test")
    assert load_dataset(repo, revision="v1", split="train").to_dict() == rows
    assert load_dataset(repo, "default", split="train").to_dict() == {"id": [1], "text": ["changed"]}
    assert load_dataset(repo, "other", split="test")["x"] == [1]
    streamed = load_dataset(repo, revision="v1", split="train", streaming=True)
    assert [row["id"] for row in streamed] == rows["id"]


def model(repo: str) -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    small = GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=32, n_positions=16)
    net = GPT2LMHeadModel(small)
    net.push_to_hub(repo, private=True)
    loaded = GPT2LMHeadModel.from_pretrained(repo)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), loaded.parameters(), strict=True))
    items = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor([1, 2, 3])}] * 4
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, push_to_hub=True, hub_model_id=repo + "-t", max_steps=2, save_steps=1, report_to=[], use_cpu=True,
            hub_always_push=True, hub_private_repo=True, disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(model=net, args=arguments, train_dataset=items)
        trainer.train()
        trainer.push_to_hub()
    GPT2LMHeadModel.from_pretrained(repo + "-t")


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
    print("done")
