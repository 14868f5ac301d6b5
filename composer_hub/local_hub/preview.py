"""The first rows of a Parquet file, read in its own process: a hostile file may end that process, not the server.

`python -m composer_hub.local_hub.preview PATH` (or `-` for stdin) prints `{"columns": […], "rows": [[…]], "total": n}`.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROWS = 10
MAX_CELL = 400
MAX_COLUMNS = 40
MAX_PIPED = 64 << 20
"""Content that is not a file on disk is sent to the process, up to this size."""
_MEMORY, _CPU_SECONDS = 768 << 20, 3
"""A usual file takes a tenth of either."""
_HANGS_AFTER = 120
_GROUP_LIMIT = 512 << 20
NOT_PARQUET = {"problem": "This file cannot be read as Parquet."}
TOO_MUCH = {"problem": "No preview: this file takes too much time or memory."}
LATER = {"problem": "No preview now: others are being read. Load the page again."}


def read_preview(content: Path | bytes | Iterable[bytes], size: int) -> dict[str, Any]:
    """Return columns, rows and the number of rows of a Parquet file, or `{"problem": sentence}`, maybe `LATER`."""
    if not isinstance(content, Path) and size > MAX_PIPED:
        return {"problem": f"No preview of files over {MAX_PIPED >> 20} MB that came through Xet."}
    data = None
    if not isinstance(content, Path):
        data = content if isinstance(content, bytes) else b"".join(content)
    command = [sys.executable, "-m", __name__, str(content) if isinstance(content, Path) else "-"]
    # OpenBLAS, which comes with pyarrow's numpy, takes memory for each core.
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    try:
        run = subprocess.run(command, input=data, capture_output=True, timeout=_HANGS_AFTER, env=env)
    except subprocess.TimeoutExpired:
        return LATER
    return json.loads(run.stdout) if run.returncode == 0 else TOO_MUCH


def first_rows(source: Any) -> dict[str, Any]:
    """Read a Parquet file; nothing is read whose first row group claims to be huge."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(source, pre_buffer=False)
    if file.metadata.num_row_groups and file.metadata.row_group(0).total_byte_size > _GROUP_LIMIT:
        return {"problem": f"No preview: the first row group is over {_GROUP_LIMIT >> 20} MB."}
    columns = [field.name for field in file.schema_arrow][:MAX_COLUMNS]
    rows: list[list[str]] = []
    for batch in file.iter_batches(batch_size=ROWS, columns=columns, use_threads=False):
        rows = [[_shown(row[name]) for name in columns] for row in batch.to_pylist()]
        break
    return {"columns": columns, "rows": rows, "total": file.metadata.num_rows}


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def main(path: str) -> None:
    """Print the preview of one file, within limits of memory and time."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        found = first_rows(io.BytesIO(sys.stdin.buffer.read()) if path == "-" else path)
    except MemoryError:
        found = TOO_MUCH
    except Exception:  # noqa: BLE001 - hostile bytes break the reader in any way
        found = NOT_PARQUET
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
