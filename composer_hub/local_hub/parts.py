"""The parts of the embedded Hub in the order in which their routes are tried. A new part is one line in each tuple."""

from __future__ import annotations

from collections.abc import Callable

from composer_hub.local_hub import buckets, commits, community, files, jobs, lfs, repos, sessions, web, xet
from composer_hub.local_hub.calls import Call, OpenPullRequest, Route
from composer_hub.local_hub.store import Repo, Store

ROUTES: tuple[Route, ...] = (
    *repos.ROUTES,
    *files.ROUTES,
    *commits.ROUTES,
    *lfs.ROUTES,
    *xet.ROUTES,
    *community.ROUTES,
    *jobs.ROUTES,
    *buckets.ROUTES,
    *sessions.ROUTES,
    *web.ROUTES,
)

SCHEMAS: tuple[str, ...] = (community.SCHEMA, jobs.SCHEMA, buckets.SCHEMA)

AT_START: tuple[Callable[[Store], None], ...] = (jobs.note_ended,)
"""How a server treats the folder of an earlier one."""

OPEN_PULL_REQUEST: OpenPullRequest | None = community.open_pull_request
"""Opens the pull request of a commit with `create_pr=1`, inside the commit's transaction."""

MAY_PUSH: Callable[[Call, Repo, str], bool] = community.may_push
"""Decides who may commit to `refs/pr/N`."""
