"""Checking and cleaning a Hub's folder: what is named stays and is found damaged, what is not named goes."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import httpx

from composer_hub.local_hub.app import open_store
from composer_hub.local_hub.bucketstore import apply_batch, create_bucket, delete_bucket
from composer_hub.local_hub.checking import check_folder
from composer_hub.local_hub.chunkstore import XetFile
from composer_hub.local_hub.cleaning import MIN_AGE, clean
from composer_hub.local_hub.server import start_server
from composer_hub.local_hub.store import NoContent, Repo, Store
from composer_hub.local_hub.trees import DeleteFile, PutFile, TreeEntry, git_oid, lfs_entry
from composer_hub.local_hub.xorbs import Malformed

from .requests import auth, create, file
from .requests import commit as commit_lines
from .test_chunkstore import AREA, FILE, add
from .test_xet import xorb_of

MAIN = "refs/heads/main"


@pytest.fixture
def clock() -> list[float]:
    return [1_700_000_000.0]


@pytest.fixture
def store(tmp_path: Path, clock: list[float]) -> Iterator[Store]:
    with contextlib.closing(open_store(tmp_path / "hub")) as store:
        store.clock = lambda: clock[0]
        yield store


@pytest.fixture
def repo(store: Store) -> Repo:
    return store.create_repo("model", "me/a", author="me", files={"README.md": b"# a"})


def send(store: Store, repo: Repo, data: bytes) -> TreeEntry:
    """Upload a file as LFS does."""
    entry = lfs_entry(hashlib.sha256(data).hexdigest(), len(data))
    store.add_lfs(repo, entry.sha256, entry.size)
    with store.blobs.writer() as writer:
        writer.write(data)
        writer.keep(entry.sha256)
    return entry


def send_chunks(store: Store, repo: Repo, data: bytes) -> TreeEntry:
    """Upload a file as hf_xet does, up to the commit."""
    file = add(store.chunks, xorb_of(data), [(len(data), 0, 1)], hashlib.sha256(data).hexdigest())
    store.add_chunked(repo, file)
    return lfs_entry(file.sha256, file.size)


def send_part(store: Store, repo: Repo, data: bytes) -> TreeEntry:
    """Upload a file in a pack with another one, which is never committed."""
    packed = xorb_of(b"other " + data, data)
    file = add(store.chunks, packed, [(len(data), 1, 2)], hashlib.sha256(data).hexdigest())
    store.add_chunked(repo, file)
    return lfs_entry(file.sha256, file.size)


def commit(store: Store, repo: Repo, path: str, entry: TreeEntry) -> str:
    return store.commit(repo, MAIN, [PutFile(path, entry)], title=path, large=[entry]).oid


def whole(store: Store) -> bool:
    found = check_folder(store)
    return not found.problems and not found.damaged


def test_what_is_named_stays_and_what_is_not_goes_when_it_is_old(store: Store, repo: Repo, clock: list[float]) -> None:
    commit(store, repo, "named.bin", send(store, repo, b"named"))
    commit(store, repo, "chunks.bin", send_chunks(store, repo, b"in chunks"))
    commit(store, repo, "large.txt", store.add_large(b"regular"))
    named = set(store.blobs.all())
    send(store, repo, b"never committed")
    add(store.chunks, xorb_of(b"never committed"), [(15, 0, 1)], name="0a")
    store.add_large(b"never committed")
    everything = set(store.blobs.all())
    assert len(everything - named) == 3
    clock[0] += MIN_AGE - 2
    assert clean(store).num_bytes == 0
    assert set(store.blobs.all()) == everything
    clock[0] += 3
    assert clean(store, dry_run=True).num_objects == 3
    assert set(store.blobs.all()) == everything
    freed = clean(store)
    assert (freed.num_objects, set(store.blobs.all())) == (3, named)
    assert freed.num_bytes == len(b"never committed") * 3 + 8
    assert whole(store)


def test_the_bytes_of_a_deleted_repository_or_bucket_go_at_once_unless_another_has_them(
    store: Store, repo: Repo
) -> None:
    other = store.create_repo("model", "me/b", author="me", files={})
    bucket = create_bucket(store, "me/k", "public", "me")
    shared, own = b"shared" * 100, b"own" * 100
    for one in (repo, other):
        commit(store, one, "shared.bin", send(store, one, shared))
    commit(store, repo, "own.bin", send(store, repo, own))
    commit(store, repo, "chunks.bin", send_chunks(store, repo, b"chunks"))
    file = {"type": "addFile", "path": "f", "xetHash": FILE}
    assert apply_batch(store, bucket, [file], "repo-1-6d65", lambda *_: "") == []
    store.delete_repo(repo)
    assert clean(store).num_bytes == len(own)
    assert b"".join(store.chunks.read(store.chunks.find(bucket.scope, FILE))) == b"chunks"  # type: ignore[arg-type]
    delete_bucket(store, bucket)
    assert clean(store).num_objects == 1
    assert list(store.blobs.all()) == [hashlib.sha256(shared).hexdigest()]
    assert whole(store)


def test_a_squashed_history_frees_its_files_and_a_tag_or_a_pull_request_keeps_them(store: Store, repo: Repo) -> None:
    oids = [commit(store, repo, "w.bin", send(store, repo, b"checkpoint %d" % number)) for number in range(4)]
    store.create_ref(repo, "refs/tags/v1", oids[1])
    store.replace_history(repo, MAIN, title="squashed", author="me")
    assert clean(store, min_age=0).num_commits == 2
    kept = {hashlib.sha256(b"checkpoint %d" % number).hexdigest() for number in (0, 1, 3)}
    assert set(store.blobs.all()) == kept
    assert store.read_bytes(repo, store.resolve(repo, "v1"), "w.bin") == b"checkpoint 1"
    store.delete_ref(repo, "refs/tags/v1")
    with store.write() as db:
        db.execute("insert into discussions values(?,1,'t','open',1,'me','',?,'')", (repo.id, oids[0]))
    assert clean(store, min_age=0).num_commits == 1
    assert whole(store)


def test_small_files_of_deleted_commits_go(store: Store, repo: Repo) -> None:
    entry = TreeEntry(git_oid(b"small"), 5)
    store.commit(repo, MAIN, [PutFile("s", entry)], title="s", small=[b"small"])
    store.commit(repo, MAIN, [DeleteFile("s")], title="gone")
    clean(store, min_age=0)
    assert store.content(repo, entry) == b"small"
    store.replace_history(repo, MAIN, title="squashed", author="me")
    clean(store, min_age=0)
    assert store.size(store.content(repo, entry)) is None
    assert whole(store)


def test_an_area_from_which_something_went_has_another_address(store: Store, repo: Repo, clock: list[float]) -> None:
    area = "repo-1-6d65"
    assert store.chunks.open_area(area) == 0
    add(store.chunks, xorb_of(b"unused"), [(6, 0, 1)])
    clock[0] += MIN_AGE - 2
    assert store.chunks.open_area(area) == 0
    clock[0] += MIN_AGE - 2
    assert clean(store).num_objects == 0, "an upload to the area may be on its way"
    clock[0] += 10
    assert clean(store).num_objects == 1
    assert store.chunks.open_area(area) == 1


def test_a_commit_whose_bytes_were_removed_meanwhile_is_refused(store: Store, repo: Repo) -> None:
    entry = send(store, repo, b"late")
    head = store.resolve(repo, "main")
    clean(store, min_age=0)
    with pytest.raises(NoContent, match="Upload it first"):
        commit(store, repo, "late.bin", entry)
    assert store.resolve(repo, "main") == head


def test_commits_and_cleaning_at_once_lose_nothing(store: Store, repo: Repo, tmp_path: Path) -> None:
    refused, stop = [], threading.Event()

    def commit_many(number: int) -> None:
        # On a busy machine the cleaner may be faster than many commits in a row.
        for i in itertools.takewhile(lambda i: i < 25 or len(refused) == i < 2500, itertools.count()):
            data = b"%d" % (i % 5) * 50
            try:
                commit(store, repo, f"{number}/{i}.bin", (send, send_chunks, send_part)[i % 3](store, repo, data))
            except (NoContent, Malformed, AssertionError):  # the last: cleaned before `add` looked for the file
                refused.append(i)
            if i % 6 == 5:
                store.replace_history(repo, MAIN, title="squashed", author="me")

    def clean_all() -> None:
        with contextlib.closing(open_store(tmp_path / "hub", is_shared=True)) as other:
            while not stop.is_set():
                clean(other, min_age=0)

    cleaner = threading.Thread(target=clean_all)
    cleaner.start()
    try:
        commit_many(0)
    finally:
        stop.set()
        cleaner.join()
    assert len(refused) < 2500
    found = check_folder(store)
    assert (found.problems, found.damaged) == ([], set())


def test_the_chunks_that_no_file_names_leave_their_packs_and_every_other_file_stays(
    store: Store, tmp_path: Path
) -> None:
    dice = random.Random(3)
    repos = [store.create_repo("model", f"me/r{number}", author="me") for number in range(3)]
    packs = [[dice.randbytes(dice.randint(20, 400)) for _ in range(8)] for _ in range(3)]
    kept: list[tuple[Repo, TreeEntry, bytes]] = []
    for number in range(40):
        spans = []
        for _ in range(dice.randint(1, 3)):
            pack, first = dice.randrange(3), dice.randrange(8)
            spans.append((pack, first, dice.randint(first + 1, min(8, first + 2))))
        data = b"".join(b"".join(packs[pack][first:stop]) for pack, first, stop in spans)
        file = send_spans(store, packs, spans, f"{number:02x}" * 32, data)
        repo, entry = dice.choice(repos), lfs_entry(file.sha256, len(data))
        store.add_chunked(repo, file)
        commit(store, repo, f"{number}.bin", entry)
        kept.append((repo, entry, data))
    while kept:
        for _ in range(min(5, len(kept))):
            repo, entry, _ = kept.pop(dice.randrange(len(kept)))
            kept = [one for one in kept if one[:2] != (repo, entry)]
            store.forget_lfs(repo, {entry.sha256})
        before = [(store.content(repo, entry), data) for repo, entry, data in kept]
        foreseen = clean(store, min_age=0, dry_run=True).num_bytes
        assert clean(store, min_age=0).num_bytes == foreseen
        assert clean(store, min_age=0).num_bytes == 0
        for repo, entry, data in kept:
            assert b"".join(store.pieces(store.content(repo, entry))) == data
        # Who began to read before goes on, at any byte.
        assert all(b"".join(store.pieces(content, 7)) == data[7:] for content, data in before)
        on_disk = b"".join(store.blobs.path(blob).read_bytes() for blob in store.blobs.all())
        for chunk in itertools.chain.from_iterable(packs):
            assert (chunk in on_disk) == any(chunk in data for _, _, data in kept)
        assert whole(store)
    assert not list(store.blobs.all())


def send_spans(
    store: Store, packs: list[list[bytes]], spans: list[tuple[int, int, int]], name: str, data: bytes
) -> XetFile:
    """Send whole packs, and one file that is made of some of their chunks."""
    for number, plain in enumerate(packs):
        with store.blobs.writer() as writer:
            writer.write(xorb_of(*plain))
            store.chunks.add_xorb(AREA, f"{number:02x}" * 32, writer)
    terms = [(f"{pack:02x}" * 32, sum(map(len, packs[pack][first:stop])), first, stop) for pack, first, stop in spans]
    store.chunks.add_files(AREA, [(name, hashlib.sha256(data).hexdigest(), terms)])
    file = store.chunks.find(AREA, name)
    assert file is not None
    return file


def test_a_pack_stays_whole_while_an_upload_may_name_its_chunks(store: Store, repo: Repo, clock: list[float]) -> None:
    commit(store, repo, "a.bin", send_part(store, repo, b"a" * 100))
    packs = list(store.blobs.all())
    clock[0] += MIN_AGE - 2
    assert store.chunks.open_area(AREA) == 0
    clock[0] += MIN_AGE - 2
    assert (clean(store).num_bytes, list(store.blobs.all())) == (0, packs)
    clock[0] += 10
    assert clean(store).num_bytes > 100
    assert store.chunks.open_area(AREA) == 1, "clients must not name a chunk that is gone"
    with pytest.raises(Malformed, match="Upload it first"):
        store.chunks.add_files(AREA, [("ef" * 32, "", [("cd" * 32, 106, 0, 1)])])
    assert whole(store)


def test_a_file_is_not_given_after_its_chunks_were_packed_again(store: Store, repo: Repo) -> None:
    commit(store, repo, "a.bin", send_part(store, repo, b"a" * 100))
    before = store.chunks.find(repo.scope, FILE)
    assert before is not None
    clean(store, min_age=0)
    with pytest.raises(Malformed, match="Upload it again"):
        store.add_chunked(repo, before)
    assert whole(store)


def test_a_damaged_pack_is_not_packed_again(store: Store, repo: Repo) -> None:
    commit(store, repo, "a.bin", send_part(store, repo, b"a" * 100))
    (blob,) = store.blobs.all()
    store.blobs.path(blob).write_bytes(store.blobs.path(blob).read_bytes()[:-1] + b"x")
    clean(store, min_age=0)
    assert check_folder(store).damaged == {blob}


@pytest.mark.parametrize("kind", ["lfs", "chunks", "regular", "small"])
@pytest.mark.parametrize("harm", ["damage", "remove"])
def test_damage_is_found_named_and_set_aside(store: Store, repo: Repo, kind: str, harm: str) -> None:
    data = random.Random(1).randbytes(500)
    if kind == "small":
        entry = TreeEntry(git_oid(data), len(data))
        store.commit(repo, MAIN, [PutFile("d/f.bin", entry)], title="f", small=[data])
        harmed = "update small set data=x'00' where oid=?" if harm == "damage" else "delete from small where oid=?"
        with store.write() as db:
            db.execute(harmed, (entry.oid,))
    else:
        makers: dict[str, Any] = {"lfs": send, "chunks": send_chunks, "regular": lambda *_: store.add_large(data)}
        entry = makers[kind](store, repo, data)
        commit(store, repo, "d/f.bin", entry)
        (blob,) = store.blobs.all()
        path = store.blobs.path(blob)
        path.write_bytes(path.read_bytes()[:-1] + b"x") if harm == "damage" else path.unlink()
    found = check_folder(store, set_aside=True)
    (problem,) = found.problems
    assert problem.where.startswith("me/a@")
    assert problem.where.endswith(":d/f.bin")
    assert ("damaged" if harm == "damage" else "missing") in problem.what
    assert not store.has_content(repo, entry)
    if kind == "small":
        store.commit(repo, MAIN, [PutFile("again", entry)], title="f", small=[data])
    else:
        commit(store, repo, "again", makers[kind](store, repo, data))
    assert whole(store)


def test_commands_beside_a_server_leave_its_jobs_alone_and_the_next_server_ends_them(tmp_path: Path) -> None:
    stages = "select stage, message from jobs"
    with contextlib.closing(open_store(tmp_path)) as store:
        with store.write() as db:
            db.execute(
                "insert into jobs(id, namespace, author, stage, labels, spec, created_at) "
                "values('a', 'me', 'me', 'RUNNING', '{}', '{}', '')"
            )
        with contextlib.closing(open_store(tmp_path, is_shared=True)):
            assert store.read().execute(stages).fetchall() == [("RUNNING", "")]
    with contextlib.closing(open_store(tmp_path)) as store:
        assert store.read().execute(stages).fetchall() == [("ERROR", "server stopped")]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "composer_hub", "hub", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=dict(os.environ), check=False)


def test_commands_beside_a_server_lose_nothing_that_it_confirms(tmp_path: Path) -> None:
    users = ["--user", "me:hf_test_me", "--no-xet"]
    names = [f"me/{number}" for number in range(3)]
    with start_server(tmp_path, users) as server, httpx.Client(base_url=server.endpoint, trust_env=False) as http:
        for name, command in zip(names, ("check", "gc", "check"), strict=True):
            assert create(http, name).status_code == 200
            assert commit_lines(http, name, [file("a.txt")]).status_code == 200
            assert run(command, "--data", str(tmp_path)).returncode == 0
        assert commit_lines(http, names[0], [file("b.txt")]).status_code == 200
        server.kill()
    with contextlib.closing(open_store(tmp_path)) as store:
        found = {one.name: set(store.tree(one, store.resolve(one, "main"))) for one in store.repos("model")}
        assert whole(store)
    assert set(found) == set(names)
    assert found[names[0]] >= {"a.txt", "b.txt"}


def test_gc_shortens_the_database_beside_a_running_server(tmp_path: Path) -> None:
    users = ["--user", "me:hf_test_me", "--no-xet"]
    with start_server(tmp_path, users) as server, httpx.Client(base_url=server.endpoint, trust_env=False) as http:
        for name in ("me/kept", "me/gone"):
            assert create(http, name).status_code == 200
            lines = [file(f"{number}.bin", random.Random(f"{name}{number}").randbytes(30_000)) for number in range(100)]
            assert commit_lines(http, name, lines).status_code == 200
        assert http.request("DELETE", "/api/repos/delete", json={"name": "gone"}, headers=auth("me")).status_code == 200
        for options in (["--dry-run"], []):
            done = run("gc", "--data", str(tmp_path), "--min-age", "0", "--format", "json", *options)
            assert (done.returncode, json.loads(done.stdout)["num_bytes"] > 3_000_000) == (0, True)
        assert commit_lines(http, "me/kept", [file("new.txt")]).status_code == 200
    assert 3_000_000 < sum(path.stat().st_size for path in tmp_path.glob("hub.sqlite*")) < 4_500_000
    with contextlib.closing(open_store(tmp_path)) as store:
        assert whole(store)


def test_the_commands_print_what_they_found_and_freed(store: Store, repo: Repo, tmp_path: Path) -> None:
    root = str(tmp_path / "hub")
    entry = send(store, repo, b"data" * 1000)
    commit(store, repo, "f.bin", entry)
    for words, code, text in itertools.chain(
        [(("check", "--data", root), 0, "num_objects=2"), (("gc", "--data", root, "--dry-run"), 0, "num_bytes=0")],
        [(("check", "--data", str(tmp_path)), 1, "is not the folder of an embedded Hub")],
    ):
        done = run(*words, "--format", "agent")
        assert (done.returncode, text in done.stdout + done.stderr) == (code, True), done
    store.blobs.path(entry.sha256).unlink()
    done = run("check", "--data", root, "--format", "agent")
    assert (done.returncode, "f.bin" in done.stdout, "Traceback" in done.stderr) == (1, True, False)
