"""Repositories as wholes: create, delete, move, settings, info, lists, who am I, and the checks before a push."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from composer_hub.local_hub import bucketstore
from composer_hub.local_hub.accounts import User
from composer_hub.local_hub.calls import PUBLIC_LIMIT, ApiError, Call, Route, text_field
from composer_hub.local_hub.cards import card_errors, card_of, tags_of
from composer_hub.local_hub.store import KINDS, Exists, Repo
from composer_hub.local_hub.trees import Tree, TreeEntry, pointer

# fmt: off
LFS_SUFFIXES = (
    "7z", "arrow", "avro", "bin", "bz2", "ckpt", "ftz", "gguf", "gz", "h5", "joblib", "lfs", "lz4", "mlmodel",
    "model", "msgpack", "npy", "npz", "onnx", "ot", "parquet", "pb", "pickle", "pkl", "pt", "pth", "rar",
    "safetensors", "tar", "tflite", "tgz", "wasm", "xz", "zip", "zst",
)
# fmt: on
GITATTRIBUTES = "".join(f"*.{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES).encode()
_NAME = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
_MAX_PAGE = 1000
_SORT_KEYS = ("createdAt", "lastModified", "downloads", "likes", "trendingScore")
_LIST_QUERY = (
    "author search filter pipeline_tag library gated sort direction limit cursor full config cardData expand".split()
)


async def create(call: Call) -> Response:
    """Create a repository with an initial commit, private if the caller or the organization wants it."""
    user = call.need_user(write=True)
    body = await call.json_body()
    kind = _kind(body)
    namespace = text_field(body, "organization", "") or user.name
    name = f"{namespace}/{text_field(body, 'name')}"
    visibility = text_field(body, "visibility", "") or _default_visibility(call, namespace, body)
    _check_new(user, kind, name, visibility)
    settings = _space_settings(body) if kind == "space" else {}
    try:
        repo = await call.write(
            call.store.create_repo,
            kind,
            name,
            author=user.name,
            visibility=visibility,
            settings=settings,
            files=_first_files(kind, name, settings),
        )
    except Exists as error:
        raise _already_there(call, kind, name) from error
    return call.json(_created(call, repo))


async def duplicate(call: Call) -> Response:
    """Create a repository with the history, the files and the visibility of another, without its pull requests."""
    source = call.repo()
    check_gate(call, source)
    user, body = call.need_user(write=True), await call.json_body()
    name = text_field(body, "repository")
    visibility = text_field(body, "visibility", "") or source.visibility
    _check_new(user, source.kind, name, visibility)
    settings = {**source.settings, **_space_settings(body)} if source.kind == "space" else {}
    create_copy = functools.partial(
        call.store.create_repo, source.kind, name, author=user.name, visibility=visibility, settings=settings
    )
    try:
        repo = await call.write(create_copy, source=source)
    except Exists as error:
        raise _already_there(call, source.kind, name) from error
    return call.json(_created(call, repo) | {"filesCopyPending": False})


async def delete(call: Call) -> Response:
    """Delete the repository that the body names; without `organization`, it is the caller's."""
    user, body = call.need_user(write=True), await call.json_body()
    name = f"{text_field(body, 'organization', '') or user.name}/{text_field(body, 'name')}"
    repo = call.repo(write=True, kind=_kind(body), name=name)
    await call.write(call.store.delete_repo, repo)
    return call.json({})


async def move(call: Call) -> Response:
    """Rename a repository or give it to another namespace; the old name leads to the new one."""
    user, body = call.need_user(write=True), await call.json_body()
    repo = call.repo(write=True, kind=_kind(body), name=text_field(body, "fromRepo"))
    target = text_field(body, "toRepo")
    namespace, _, name = target.partition("/")
    if not _NAME.fullmatch(name) or not user.may_create_in(namespace):
        raise ApiError(403, f'You don\'t have the rights to move {repo.name} to "{target[:200]}"')
    await call.write(call.store.move_repo, repo, target)
    return call.json({"url": call.url("/" + call.store.repo_by_id(repo.id).web_path)})


async def change_settings(call: Call) -> Response:
    """Change visibility and gate; a field that the body leaves out keeps its value."""
    repo = call.repo(write=True)
    body = await call.json_body()
    visibility = body.get("visibility")
    if visibility is None and body.get("private") is not None:
        visibility = visibility_of(body["private"])
    gated = body.get("gated")
    if visibility not in (None, "public", "private", "protected") or gated not in (None, False, "auto", "manual"):
        raise ApiError(400, "Settings are `visibility` (public, private, protected) and `gated` (auto, manual, false).")
    new_gated = None if gated is None else gated or ""
    repo = await call.write(call.store.update_repo, repo, visibility=visibility, gated=new_gated)
    return call.json({"private": repo.is_private, "visibility": repo.visibility, "gated": repo.gated or False})


def list_storage(call: Call) -> Response:
    """List everything of a namespace, buckets too, with what it stores: what `hf repos list` shows."""
    user = call.need_user()
    namespace = call.args.get("ns", user.name)
    if not user.may_read(namespace):
        raise ApiError(403, f"You are not a member of {namespace}.")
    found = []
    for kind in KINDS:
        for repo in call.store.repos(kind):
            if repo.namespace == namespace:
                oid = _main(call, repo)
                size = sum(entry.size for entry in call.store.tree(repo, oid).values())
                found.append((repo.name, kind, repo.visibility, call.store.find_commit(repo, oid).created_at, size))
    for bucket in bucketstore.buckets_of(call.store.read(), namespace):
        size, _ = bucketstore.totals(call.store.read(), bucket)
        found.append((bucket.name, "bucket", bucket.visibility, bucket.created_at, size))
    total = sum(size for *_, size in found) or 1
    return call.json(
        [
            {
                "id": name,
                "type": kind,
                "visibility": visibility,
                "updatedAt": changed_at,
                "storage": size,
                "storagePercent": round(100 * size / total, 1),
            }
            for name, kind, visibility, changed_at, size in found
        ]
    )


def show(call: Call) -> Response:
    """Answer the info of a repository at a revision."""
    repo = call.repo()
    oid = call.store.resolve(repo, call.args.get("rev", "main"))
    return call.json(info(call, repo, oid, with_blobs=call.flag("blobs"), only=_expand(call)))


def list_repos(call: Call) -> Response:
    """List what the caller may see, filtered and paged; names first, so that only shown repositories are read."""
    query, kind = call.query, call.args["kinds"][:-1]
    _check_list_query(call)
    author, words = query.get("author"), [word.lower() for word in query.getlist("search")]
    gated = query.get("gated", "").lower()
    filters = {*query.getlist("filter"), *query.getlist("pipeline_tag"), *query.getlist("library")}
    limit = min(call.number("limit", _MAX_PAGE), _MAX_PAGE)
    start = call.number("cursor", 0)
    shown: list[dict[str, Any]] = []
    for index, repo in enumerate(_sorted(call, call.store.repos(kind))):
        if index < start or not call.may_read(repo):
            continue
        if (author and repo.namespace != author) or not all(word in repo.name.lower() for word in words):
            continue
        if gated in ("true", "false") and bool(repo.gated) != (gated == "true"):
            continue
        if len(shown) == limit:
            return call.json(shown, headers=_next_page(call, index))
        details = info(call, repo, _main(call, repo), with_blobs=False, only=_expand(call))
        if not filters or filters <= set(details.get("tags") or tags_of(_card(call, repo, _main(call, repo)))):
            shown.append(details)
    return call.json(shown)


def _check_list_query(call: Call) -> None:
    """Refuse filters that are not implemented; ignoring them would return a wrong list."""
    if unknown := sorted({key.removesuffix("[]") for key in call.query} - {*_LIST_QUERY}):
        message = f"The embedded Hub does not select repositories by {', '.join(unknown)[:200]}. Leave it out."
        raise ApiError(501, message, "NotImplemented", body={"missing": unknown})
    if (key := call.query.get("sort", "createdAt")) not in _SORT_KEYS:
        raise ApiError(400, f"Repositories are not sorted by {key[:100]!r}. Use {', '.join(_SORT_KEYS)}.", "BadRequest")


def _sorted(call: Call, repos: Iterable[Repo]) -> list[Repo]:
    """Sort as asked, newest first unless `direction` is 1. Downloads and likes are always 0."""
    key, descending = call.query.get("sort"), call.query.get("direction") != "1"
    if key == "createdAt":
        return sorted(repos, key=lambda repo: (repo.created_at, repo.id), reverse=descending)
    if key == "lastModified":
        changed = {repo.id: call.store.find_commit(repo, _main(call, repo)).created_at for repo in repos}
        return sorted(repos, key=lambda repo: (changed[repo.id], repo.id), reverse=descending)
    return list(repos)


async def who_am_i(call: Call) -> Response:
    """Answer the caller's account and organizations, with every field that clients read."""
    user = call.need_user()
    organizations = [call.hub.accounts.organizations[name] for name in user.roles]
    return call.json(
        {
            "type": "user",
            "id": user.name.encode().hex()[:24].ljust(24, "0"),
            "name": user.name,
            "fullname": user.fullname or user.name,
            "email": user.email or None,
            "emailVerified": bool(user.email),
            "isPro": False,
            "canPay": False,
            "periodEnd": None,
            "avatarUrl": "",
            "orgs": [
                {
                    "type": "org",
                    "id": organization.name.encode().hex()[:24].ljust(24, "0"),
                    "name": organization.name,
                    "fullname": organization.fullname or organization.name,
                    "roleInOrg": user.roles[organization.name],
                    "isEnterprise": False,
                    "canPay": False,
                    "avatarUrl": "",
                }
                for organization in organizations
            ],
            "auth": {
                "type": "access_token",
                "accessToken": {"displayName": "embedded", "role": "write" if user.can_write else "read"},
            },
        }
    )


async def check_right(call: Call) -> Response:
    """Answer 200 if the caller may read (or with `/write`, write) the files."""
    write = call.args.get("right") == "write"
    repo = call.repo(write=write)
    check_gate(call, repo)
    return call.json({})


def may_open(call: Call, repo: Repo) -> bool:
    """Return whether the caller may read the files: those of a gated repository are closed outside its namespace."""
    is_member = call.user is not None and call.user.may_read(repo.namespace)
    return call.may_read(repo) and (is_member or not repo.gated)


def check_gate(call: Call, repo: Repo) -> None:
    """Refuse the files of a gated repository to everyone outside its namespace."""
    if not may_open(call, repo):
        message = f"Access to {repo.kind} {repo.name} is restricted and you are not in the authorized list."
        raise ApiError(403 if call.user else 401, message, "GatedRepo")


async def validate_yaml(call: Call) -> Response:
    """Check a card before its upload, also for callers without a token; 400 with the errors, if any."""
    body = await call.json_body(PUBLIC_LIMIT, from_anyone=True)
    content, kind = text_field(body, "content"), text_field(body, "repoType", "model")
    errors, warnings = await call.in_thread(card_errors, content, kind)
    answer = {"errors": [{"message": text} for text in errors], "warnings": [{"message": text} for text in warnings]}
    return call.json(answer, 400 if errors else 200)


async def no_harnesses(call: Call) -> Response:
    """Answer that no agent harness is known, with the fields that clients read."""
    return call.json({"standardEnvVars": [], "harnesses": {}})


async def nothing(call: Call) -> Response:
    """Answer an empty 200; telemetry is not kept."""
    return Response()


def info(call: Call, repo: Repo, oid: str, *, with_blobs: bool, only: list[str]) -> dict[str, Any]:
    """Return the info of a repository, or only the named fields."""
    head, tree, card = call.store.find_commit(repo, oid), call.store.tree(repo, oid), _card(call, repo, oid)
    details: dict[str, Any] = {
        "_id": f"{repo.id:024x}",
        "id": repo.name,
        "author": repo.namespace,
        "sha": oid,
        "lastModified": head.created_at,
        "createdAt": repo.created_at,
        "private": repo.is_private,
        "visibility": repo.visibility,
        "gated": repo.gated or False,
        "disabled": False,
        "downloads": 0,
        "downloadsAllTime": 0,
        "likes": 0,
        "trendingScore": 0,
        "tags": tags_of(card),
        "cardData": card,
        "siblings": [_sibling(path, tree[path], with_blobs) for path in sorted(tree)],
        "usedStorage": sum(entry.size for entry in tree.values()),
    }
    if repo.kind == "model":
        names = {
            "modelId": repo.name,
            "library_name": card.get("library_name"),
            "pipeline_tag": card.get("pipeline_tag"),
        }
        details |= {**names, "config": {}, "spaces": []}
    if repo.kind == "space":
        subdomain = re.sub(r"[^a-z0-9]+", "-", repo.name.lower())
        details |= {"sdk": repo.settings.get("sdk"), "subdomain": subdomain, "host": call.url("/" + repo.web_path)}
        details["runtime"] = _runtime(tree)
    return {key: value for key, value in details.items() if key in ("_id", "id", *only)} if only else details


def show_runtime(call: Call) -> Response:
    """Answer the simulated state of a Space's app."""
    repo = call.repo(kind="space")
    return call.json(_runtime(call.store.tree(repo, _main(call, repo))))


def _runtime(tree: Tree) -> dict[str, Any]:
    """Describe the app of a Space as if it ran; `simulated` marks that nothing does."""
    has_app = any(path in tree for path in ("app.py", "index.html", "Dockerfile", "streamlit_app.py"))
    hardware = {"current": "cpu-basic", "requested": "cpu-basic"}
    stage = "RUNNING" if has_app else "NO_APP_FILE"
    return {"stage": stage, "hardware": hardware, "gcTimeout": None, "storage": None, "simulated": True}


def _space_settings(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the SDK that a new Space asks for; settings of an app that is never run are refused."""
    if refused := [key for key in ("hardware", "secrets", "sleepTimeSeconds", "variables", "volumes") if body.get(key)]:
        message = f"The embedded Hub runs no Spaces, so it keeps no {', '.join(refused)}. Set them on the real Hub."
        raise ApiError(501, message, "NotImplemented", body={"missing": refused})
    return {"sdk": text_field(body, "sdk")} if body.get("sdk") is not None else {}


def _sibling(path: str, entry: TreeEntry, with_blobs: bool) -> dict[str, Any]:
    if not with_blobs:
        return {"rfilename": path}
    details: dict[str, Any] = {"rfilename": path, "size": entry.size, "blobId": entry.oid}
    return details | ({"lfs": lfs_details(entry, "sha256")} if entry.sha256 else {})


def lfs_details(entry: TreeEntry, key: str) -> dict[str, Any]:
    """Return the LFS part of a file's listing; its hash is named `oid` in trees and `sha256` in infos."""
    return {key: entry.sha256, "size": entry.size, "pointerSize": len(pointer(entry.sha256, entry.size))}


def _card(call: Call, repo: Repo, oid: str) -> dict[str, Any]:
    return card_of(call.store.read_bytes(repo, oid, "README.md") or b"")


def _main(call: Call, repo: Repo) -> str:
    return call.store.resolve(repo, "main")


def _default_visibility(call: Call, namespace: str, body: Mapping[str, Any]) -> str:
    is_private = body.get("private")
    return visibility_of(call.hub.accounts.is_private_by_default(namespace) if is_private is None else is_private)


def visibility_of(is_private: Any) -> str:
    """Return the name for a `private` of a JSON body; refuse anything but true and false."""
    if not isinstance(is_private, bool):
        raise ApiError(400, "The field 'private' must be true or false.", "BadRequest")
    return "private" if is_private else "public"


def _kind(body: Mapping[str, Any]) -> str:
    kind = text_field(body, "type", "model")
    if kind not in KINDS:
        message = f"The embedded Hub does not do this with repositories of type {kind[:100]!r}."
        raise ApiError(501, message, "NotImplemented", body={"missing": f"repositories of type {kind[:100]}"})
    return kind


def _check_new(user: User, kind: str, name: str, visibility: str) -> None:
    """Check the name, the right and the visibility of a repository that is to be created."""
    namespace, _, word = name.partition("/")
    if not _NAME.fullmatch(word) or word.endswith((".git", ".ipynb")):
        raise ApiError(400, f"Invalid repo name: {name[:200]!r}. Use letters, digits, '-', '_' and '.'.", "BadRequest")
    if not user.may_create_in(namespace):
        raise ApiError(403, f'You don\'t have the rights to create a {kind} under the namespace "{namespace[:200]}"')
    if visibility not in ("public", "private", "protected"):
        raise ApiError(400, f"Invalid visibility: {visibility!r}", "BadRequest")


def _first_files(kind: str, name: str, settings: Mapping[str, Any]) -> dict[str, bytes]:
    files = {".gitattributes": GITATTRIBUTES}
    if kind == "space":
        title = name.partition("/")[2]
        files["README.md"] = f"---\ntitle: {title}\nsdk: {settings.get('sdk', 'static')}\n---\n".encode()
    return files


def _created(call: Call, repo: Repo) -> dict[str, Any]:
    url = call.url("/" + repo.web_path)
    return {"url": url, "name": repo.name, "id": repo.name, "private": repo.is_private, "visibility": repo.visibility}


def _already_there(call: Call, kind: str, name: str) -> ApiError:
    """Answer 409 with the URL in the body: clients read it there under `exist_ok`."""
    repo = call.repo(kind=kind, name=name)
    return ApiError(409, f"You already created this {kind} repo", body=_created(call, repo))


def _expand(call: Call) -> list[str]:
    return [*call.query.getlist("expand"), *call.query.getlist("expand[]")]


def _next_page(call: Call, cursor: int) -> dict[str, str]:
    pairs = [(key, value) for key, value in call.query.multi_items() if key != "cursor"]
    url = call.url(call.request.url.path) + "?" + urlencode([*pairs, ("cursor", str(cursor))])
    return {"Link": f'<{url}>; rel="next"'}


ROUTES = (
    Route("GET", "/api/whoami-v2", who_am_i),
    Route("POST", "/api/repos/create", create),
    Route("DELETE", "/api/repos/delete", delete),
    Route("POST", "/api/repos/move", move),
    Route("POST", "/api/validate-yaml", validate_yaml),
    Route("GET", "/api/agent-harnesses", no_harnesses),
    Route("GET", "/api/telemetry/{topic...}", nothing),
    Route("GET", "/api/settings/repositories", list_storage),
    Route("GET", "/api/organizations/{ns}/settings/repositories", list_storage),
    Route("GET", "/api/spaces/{ns}/{name}/runtime", show_runtime),
    Route("GET", "/api/{kinds}", list_repos),
    Route("GET", "/api/{kinds}/{ns}/{name}", show),
    Route("GET", "/api/{kinds}/{ns}/{name}/revision/{rev}", show),
    Route("PUT", "/api/{kinds}/{ns}/{name}/settings", change_settings),
    Route("POST", "/api/{kinds}/{ns}/{name}/duplicate", duplicate),
    Route("GET", "/api/{kinds}/{ns}/{name}/auth-check", check_right),
    Route("GET", "/api/{kinds}/{ns}/{name}/auth-check/{right}", check_right),
)
