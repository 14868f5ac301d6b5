"""Lines of JSON as crashes and two writers at once leave them."""

from __future__ import annotations

import pytest

from composer_hub.ingest.documents import json_lines
from composer_hub.ingest.report import FileReport


@pytest.mark.parametrize(("line", "records", "repaired", "corrupt"), [
    (b'{"a": 1}{"a": 2}\n', [1, 2], 1, 0),
    (b'{"a": 1} \r{"a": 2}', [1, 2], 1, 0),
    (b'\0\0\0{"a": 1}\n', [1], 1, 0),
    (b'{"a": 1}\0\0\0\n', [1], 1, 0),
    (b'{"a": 1}{"a": \n', [], 0, 1),
    (b'{"a": 1} and words\n', [], 0, 1),
    (b'{"a": 1}[2]\n', [], 0, 1),
    (b"\0\0\0\n", [], 0, 1),
    (b'{"a": 1}' + b'{"a": ' * 5000 + b"\n", [], 0, 1),
])  # fmt: skip
def test_whole_objects_on_one_line_are_all_read(line, records, repaired, corrupt, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(line)
    report = FileReport(str(path))
    assert [record["a"] for _, record in json_lines(path, report)] == records
    assert (report.counts["repaired"], report.counts["corrupt"]) == (repaired, corrupt)
    assert report.counts["records"] == len(records)
