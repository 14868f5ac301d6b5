"""Requests of the protocol, as the tests of the embedded Hub send them."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

Line = tuple[str, dict[str, Any]]
"""The key and the value of a line of a commit."""


def auth(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer hf_test_{name}"} if name else {}


def create(http: Any, name: str, who: str = "me", **fields: Any) -> Any:
    namespace, _, word = name.partition("/")
    body = {"name": word, "organization": namespace, "type": "model", **fields}
    return http.post("/api/repos/create", json=body, headers=auth(who))


def commit(http: Any, name: str, lines: list[Line], who: str = "me", rev: str = "main", **header: Any) -> Any:
    items = [("header", {"summary": "test", **header}), *lines]
    body = "\n".join(json.dumps({"key": key, "value": value}) for key, value in items)
    return http.post(f"/api/models/{name}/commit/{quote(rev, safe='')}", content=body, headers=auth(who))


def file(path: str, data: bytes = b"hello") -> Line:
    return "file", {"path": path, "encoding": "base64", "content": base64.b64encode(data).decode()}


def lfs_file(path: str, data: bytes) -> Line:
    oid = hashlib.sha256(data).hexdigest()
    return "lfsFile", {"path": path, "algo": "sha256", "oid": oid, "size": len(data)}


def announce(http: Any, name: str, data: bytes, who: str = "me", oid: str = "") -> dict[str, Any]:
    """Announce the upload of an LFS file; the answer has no `actions` if the repository holds it."""
    asked = {"operation": "upload", "objects": [{"oid": oid or hashlib.sha256(data).hexdigest(), "size": len(data)}]}
    return http.post(f"/{name}.git/info/lfs/objects/batch", json=asked, headers=auth(who)).json()["objects"][0]


def upload(http: Any, name: str, data: bytes, content: Any = None) -> Any:
    """Announce an LFS file and send its content."""
    return http.put(announce(http, name, data)["actions"]["upload"]["href"], content=content or data)


def files_holding(root: Path, data: bytes) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and data in path.read_bytes()]
