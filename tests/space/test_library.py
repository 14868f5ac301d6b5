"""Who may read a dataset is what the Hub says, and a Hub that fails says nothing."""

from __future__ import annotations

import pytest
from huggingface_hub.errors import HfHubHTTPError

pytest.importorskip("gradio", reason="needs the extra space")
pytest.importorskip("duckdb", reason="needs the extra space")

from inspector.library import NotShown, SpaceLibrary

from tests.jobs.answers import answering


def test_a_hub_that_fails_once_does_not_hide_a_dataset_that_one_may_read() -> None:
    checks = [f"GET /api/datasets/me/{name}/auth-check" for name in ("pairs", "other")]
    script = {checks[0]: [(503, {"error": "busy"}), (200, {})], checks[1]: [(404, {"error": "not there"})]}
    with answering(script) as (where, _):
        library = SpaceLibrary([], endpoint=where.api.endpoint)
        with pytest.raises(HfHubHTTPError):
            library.check_access("me/pairs", "hf_test")
        library.check_access("me/pairs", "hf_test")
        with pytest.raises(NotShown):
            library.check_access("me/other", "hf_test")
