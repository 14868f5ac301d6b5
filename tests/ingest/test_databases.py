"""Databases of harnesses: the newest rows count, and the user's files stay as they are."""

from __future__ import annotations

import json
import sqlite3

import pytest

from composer_hub.ingest.databases import opened, rows, tables_of
from composer_hub.ingest.files import digest_of, stat_of
from composer_hub.ingest.readers import cursor, goose, hermes, opencode
from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.ingest.sources import SOURCES


def opencode_database(path, document):
    """Write an export as OpenCode's database."""
    info = document["info"]
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE session (id TEXT, parent_id TEXT, directory TEXT, version TEXT)")
    database.execute("CREATE TABLE message (id TEXT, session_id TEXT, data TEXT)")
    database.execute("CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT)")
    facts = info["id"], info.get("parentID"), info["directory"], info["version"]
    database.execute("INSERT INTO session VALUES (?, ?, ?, ?)", facts)
    for message in document["messages"]:
        entry = {key: value for key, value in message["info"].items() if key != "id"}
        database.execute("INSERT INTO message VALUES (?, ?, ?)", (message["info"]["id"], info["id"], json.dumps(entry)))
        for part in message["parts"]:
            data = json.dumps({key: value for key, value in part.items() if key != "id"})
            database.execute(
                "INSERT INTO part VALUES (?, ?, ?, ?)", (part["id"], message["info"]["id"], info["id"], data)
            )
    database.commit()
    return database


def table_of(path, *tables):
    """Write tables whose columns are the keys of their rows."""
    database = sqlite3.connect(path)
    for name, records in tables:
        columns = list(dict.fromkeys(key for record in records for key in record))
        database.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        marks = ", ".join("?" for _ in columns)
        for record in records:
            values = [json.dumps(v) if isinstance(v, list | dict) else v for v in (record.get(c) for c in columns)]
            database.execute(f"INSERT INTO {name} VALUES ({marks})", values)
    database.commit()
    database.close()
    return path


def claims(path):
    head = path.read_bytes()[:65536]
    return [source.name for source in SOURCES if source.sniff(head, path)]


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_database_of_opencode_gives_the_session_of_the_export(logs, read_file, tmp_path):
    (exported,), _ = read_file(opencode, logs / "opencode/export.json")
    path = tmp_path / "opencode.db"
    opencode_database(path, json.loads((logs / "opencode/export.json").read_text())).close()
    assert claims(path) == ["opencode"]
    (session,), report = read_file(opencode, path)
    assert session.trace == exported.trace
    assert session.flags == exported.flags
    assert report.counts["corrupt"] == 0


def test_rows_that_the_harness_has_not_moved_into_the_database_are_read(logs, tmp_path):
    document = json.loads((logs / "opencode/export.json").read_text())
    path = tmp_path / "opencode.db"
    sqlite3.connect(path).execute("PRAGMA journal_mode = WAL").close()
    writer = opencode_database(path, document)
    before, files = (digest_of(path), stat_of(path)), sorted(tmp_path.iterdir())
    (session,) = opencode.read(path, FileReport())
    assert len(session.trace.steps) == 8
    assert sorted(tmp_path.iterdir()) == files
    writer.execute("UPDATE session SET version = '2'")
    writer.commit()
    assert digest_of(path) != before[0]
    assert stat_of(path) != before[1]
    (session,) = opencode.read(path, FileReport())
    assert session.trace.provenance["harness_version"] == "2"
    writer.close()


def test_a_damaged_database_is_one_sentence(tmp_path):
    path = tmp_path / "opencode.db"
    path.write_bytes(b"SQLite format 3\x00" + bytes(range(256)) * 20)
    assert tables_of(path.read_bytes(), path) == {}
    assert claims(path) == []
    with (
        pytest.raises(SessionError, match=r"opencode\.db cannot be read as a SQLite database"),
        opened(path) as database,
    ):
        list(rows(database, "SELECT * FROM session"))


def test_the_database_of_hermes_gives_the_session_of_the_export(logs, read_file, tmp_path):
    (exported,), _ = read_file(hermes, logs / "hermes/export.jsonl")
    (row,) = lines_of(logs / "hermes/export.jsonl")
    messages = row.pop("messages")
    path = table_of(tmp_path / "state.db", ("sessions", [row]), ("messages", messages))
    assert claims(path) == ["hermes"]
    (session,), _ = read_file(hermes, path)
    assert session.trace == exported.trace


def test_the_database_of_goose_gives_the_messages_of_the_older_file(logs, read_file, tmp_path):
    (older,), _ = read_file(goose, logs / "goose/20260708_1.jsonl")
    facts, *messages = lines_of(logs / "goose/20260708_1.jsonl")
    session = {"id": "20260708_1", "working_dir": facts["working_dir"], "model_config_json": {"model_name": "gpt-x"}}
    broken = {"id": 90, "session_id": "20260708_1", "role": "user", "content_json": "{ not json", "metadata_json": None}
    stored = [
        {
            "id": number, "message_id": f"m{number}", "session_id": "20260708_1", "role": message["role"],
            "content_json": message["content"], "metadata_json": message.get("metadata"),
        }
        for number, message in enumerate(messages)
    ]  # fmt: skip
    path = table_of(tmp_path / "sessions.db", ("sessions", [session]), ("messages", [*stored, broken]))
    assert claims(path) == ["goose"]
    (read,), report = read_file(goose, path)
    assert read.trace.messages == older.trace.messages
    assert (read.trace.model, read.trace.cwd, report.counts["corrupt"]) == ("gpt-x", "/w/shop", 1)


def test_a_conversation_of_cursors_editor_keeps_the_order_of_its_headers(read_file, tmp_path):
    bubbles = {
        "b2": {"type": 2, "thinking": {"text": "Look."}},
        "b3": {"type": 2, "text": "I run it.", "modelInfo": {"modelName": "composer-1"}},
        "b1": {"type": 1, "text": "Run the tests."},
        "b4": {"type": 2, "toolFormerData": {
            "toolCallId": "t1", "name": "run_terminal_command_v2", "status": "completed",
            "rawArgs": json.dumps({"command": "nope"}),
            "result": json.dumps({"output": "bash: nope: command not found", "exitCodeV2": 127}),
        }},
        "b5": {"type": 2, "toolFormerData": {
            "toolCallId": "t2", "name": "edit_file_v2", "status": "completed", "userDecision": "rejected",
        }},
        "b6": {"type": 2, "text": "I stop."},
    }  # fmt: skip
    composer = {
        "fullConversationHeadersOnly": [{"bubbleId": f"b{n}", "type": 1 if n == 1 else 2} for n in range(1, 8)],
        "workspaceIdentifier": {"uri": {"fsPath": "/w/shop"}},
    }
    rows_of = [{"key": "composerData:c1", "value": composer}]
    rows_of += [{"key": f"bubbleId:c1:{name}", "value": bubble} for name, bubble in bubbles.items()]
    path = table_of(tmp_path / "state.vscdb", ("cursorDiskKV", rows_of), ("ItemTable", [{"key": "a", "value": "b"}]))
    assert claims(path) == ["cursor"]
    (session,), report = read_file(cursor, path)
    trace = session.trace
    actions = [trace.messages[step.action] for step in trace.steps]
    assert [(one.content, one.reasoning_content, len(one.tool_calls)) for one in actions] == [
        ("I run it.", "Look.", 1), ("", "", 1), ("I stop.", "", 0),
    ]  # fmt: skip
    assert (trace.cwd, trace.model, report.counts["corrupt"]) == ("/w/shop", "composer-1", 1)
    assert [(flag.exit_code, flag.detail) for flag in session.flags.values()] == [(127, ""), (None, "user_rejected")]


def test_the_store_of_cursors_command_line_is_read_in_the_order_of_its_root(read_file, tmp_path):
    messages = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": [{"type": "text", "text": "List."}]},
        {"role": "assistant", "content": [
            {"type": "reasoning", "text": "ls"},
            {"type": "tool-call", "toolCallId": "t1", "toolName": "Shell", "args": {"command": "ls"}},
        ]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "t1", "result": "a.py"}]},
        {"role": "assistant", "content": "One file."},
    ]  # fmt: skip
    path = tmp_path / "store.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB)")
    database.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
    digests = [bytes([number]) * 32 for number in range(len(messages))]
    for digest, message in reversed(list(zip(digests, messages, strict=True))):
        database.execute("INSERT INTO blobs VALUES (?, ?)", (digest.hex(), json.dumps(message).encode()))
    root = b"".join(b"\x0a\x20" + digest for digest in digests)
    database.execute("INSERT INTO blobs VALUES ('ff', ?)", (root,))
    meta = {"agentId": "a-1", "latestRootBlobId": "ff", "lastUsedModel": "composer-1"}
    database.execute("INSERT INTO meta VALUES ('0', ?)", (json.dumps(meta).encode().hex(),))
    database.commit()
    database.close()
    assert claims(path) == ["cursor"]
    (session,), report = read_file(cursor, path)
    trace = session.trace
    assert (trace.session_id, trace.model, trace.system_prompt_source) == ("a-1", "composer-1", "recorded")
    assert [message.role for message in trace.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert report.counts["unknown"] == 0
