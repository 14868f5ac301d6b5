"""Pages for people: every link that a client prints opens here, with cards rendered and the first rows of Parquet.

The pages only read. A browser signs in by `sessions.py`; without a session it sees what everybody may see.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from composer_hub.local_hub import buckets, bucketstore, community, merging
from composer_hub.local_hub.accounts import RESERVED
from composer_hub.local_hub.calls import ApiError, Call, Handler, Route, not_offered
from composer_hub.local_hub.cards import card_of, tags_of
from composer_hub.local_hub.elements import esc
from composer_hub.local_hub.preview import LATER, read_preview
from composer_hub.local_hub.repos import check_gate, may_open
from composer_hub.local_hub.sessions import failed, login_form, name_of
from composer_hub.local_hub.store import KINDS, Commit, Repo
from composer_hub.local_hub.trees import Folder, TreeEntry
from composer_hub.local_hub.webpage import anchor, diff, markdown, page, table

MAX_SHOWN = 256 << 10
_MAX_ROWS = 1000
_MAX_REPOS = 500
_COMMITS = 50
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_KEPT_PREVIEWS, _WAITING_PREVIEWS = 32, 8
_USE = {
    "model": 'from transformers import AutoModel\n\nmodel = AutoModel.from_pretrained("{name}")',
    "dataset": 'from datasets import load_dataset\n\ndata = load_dataset("{name}")',
    "space": "hf download {name} --repo-type space",
}


# ---------------------------------------------------------------------------------------------------------- lists


def show_home(call: Call) -> Response:
    """Show every repository that the caller may see, or those of one namespace."""
    namespace = call.args.get("ns", "")
    if namespace in RESERVED:
        raise not_offered(call.request.method, call.request.url.path)
    if namespace and not call.hub.accounts.holds_namespace(namespace):
        raise ApiError(404, f"There is no user, organization or repository {namespace[:200]!r} here.", "RepoNotFound")
    parts: list[str] = []
    for kind in KINDS:
        seen = (repo for repo in call.store.repos(kind) if call.may_read(repo) and namespace in ("", repo.namespace))
        rows = [
            [anchor(f"/{repo.web_path}", repo.name), _badges(repo), _day(repo.created_at)]
            for repo in islice(seen, _MAX_REPOS)
        ]
        parts += [f"<h2>{kind.capitalize()}s</h2>", table(["name", "", "created"], rows)] if rows else []
    empty = "<p>There is nothing here that you may see.</p>" + ("" if call.user else login_form(call.request.url.path))
    return _page(call, namespace or "Repositories", "".join(parts) or empty)


# ---------------------------------------------------------------------------------------------------------- files


async def show_repo(call: Call) -> Response:
    """Show the card of a repository, and the first rows of a dataset."""
    repo = _repo(call)
    revision = call.query.get("revision", "main")
    oid = call.store.resolve(repo, revision)
    readme = (await call.in_thread(call.store.read_bytes, repo, oid, "README.md") or b"").decode("utf-8", "replace")
    tags = "".join(f'<span class="tag">{esc(tag)}</span>' for tag in tags_of(card_of(readme.encode())))
    use = f"<pre>{esc(_USE[repo.kind].format(name=repo.name))}</pre>"
    rows = await _first_rows(call, repo, oid) if repo.kind == "dataset" and may_open(call, repo) else ""
    card = markdown(readme, _place(repo, "blob", revision), _place(repo, "resolve", revision))
    return _repo_page(call, repo, "Card", f"<p>{tags}</p>{use}{rows}{card if readme else '<p>No card.</p>'}")


async def show_tree(call: Call) -> Response:
    """Show the files of a folder."""
    repo, revision, folder = _repo(call), call.args["rev"], call.args.get("path", "").strip("/")
    oid = call.store.resolve(repo, revision)
    items = await call.in_thread(call.store.listing, repo, oid, folder, recursive=False)
    if folder and not items:
        raise ApiError(404, f"{folder} does not exist at {revision}.", "EntryNotFound")
    shown = sorted(items.items(), key=lambda item: (isinstance(item[1], TreeEntry), item[0]))
    rows = [_file_row(repo, revision, path, item) for path, item in shown[:_MAX_ROWS]]
    more = f"<p>… and {len(shown) - _MAX_ROWS:,} more.</p>" if len(shown) > _MAX_ROWS else ""
    return _repo_page(call, repo, "Files", _crumbs(repo, revision, folder) + table(["name", "size"], rows) + more)


async def show_blob(call: Call) -> Response:
    """Show a file: text as text, Markdown rendered, an image, or the first rows of Parquet."""
    repo, revision, path = _repo(call), call.args["rev"], call.args["path"]
    check_gate(call, repo)
    oid = call.store.resolve(repo, revision)
    entry = (await call.in_thread(call.store.tree, repo, oid)).get(path)
    if entry is None:
        raise ApiError(404, f"{path[:300]} does not exist at {revision[:200]}.", "EntryNotFound")
    raw = _place(repo, "resolve", revision, path)
    about = f'<p class="quiet">{_size(entry.size)} · {anchor(raw, "download", download=True)}</p>'
    if path.endswith(".parquet"):
        body = await _rows(call, repo, entry)
    elif path.lower().endswith(_IMAGES):
        body = f'<p class="card"><img src="{esc(raw)}" alt="{esc(path)}"></p>'
    elif entry.size > MAX_SHOWN:
        body = "<p>Too large to show.</p>"
    else:
        body = _as_text(await call.in_thread(_read, call, repo, entry), repo, revision, path)
    return _repo_page(call, repo, "Files", _crumbs(repo, revision, path) + about + body)


def _as_text(data: bytes, repo: Repo, revision: str, path: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "<p>Not a text.</p>"
    if path.endswith(".md"):
        here = path.rpartition("/")[0]
        return markdown(text, _place(repo, "blob", revision, here), _place(repo, "resolve", revision, here))
    return f"<pre>{esc(text)}</pre>" if "\0" not in text else "<p>Not a text.</p>"


def _file_row(repo: Repo, revision: str, path: str, item: TreeEntry | Folder) -> list[str]:
    name = path.rpartition("/")[2]
    if isinstance(item, Folder):
        return [anchor(_place(repo, "tree", revision, path), f"{name}/"), ""]
    return [anchor(_place(repo, "blob", revision, path), name), _size(item.size)]


def _crumbs(repo: Repo, revision: str, path: str) -> str:
    words = path.split("/") if path else []
    above = ["/".join(words[:depth]) for depth in range(len(words))]
    links = [anchor(_place(repo, "tree", revision, folder), folder.rpartition("/")[2] or revision) for folder in above]
    return f"<p>{' / '.join([*links, esc(words[-1] if words else revision)])}</p>"


async def _first_rows(call: Call, repo: Repo, oid: str) -> str:
    """Return the first rows of the config that `load_dataset` takes by default."""
    tree = await call.in_thread(call.store.tree, repo, oid)
    paths = sorted(path for path in tree if path.endswith(".parquet") and not path.startswith("index/"))
    if not paths:
        return ""
    configs = [f"/{config}/" for config in _configs(call, repo, oid)]
    first = next((path for config in configs for path in paths if config in f"/{path}"), paths[0])
    title = f"<h2>First rows of {anchor(_place(repo, 'blob', oid, first), first)}</h2>"
    return title + await _rows(call, repo, tree[first])


def _configs(call: Call, repo: Repo, oid: str) -> Iterator[str]:
    """Yield the names of the configs, the default one first."""
    found = card_of(call.store.read_bytes(repo, oid, "README.md") or b"").get("configs")
    configs = [config for config in found if isinstance(config, dict)] if isinstance(found, list) else []
    for config in sorted(configs, key=lambda config: config.get("default") is not True):
        yield str(config.get("config_name"))


async def _rows(call: Call, repo: Repo, entry: TreeEntry) -> str:
    found = await _preview(call, repo, entry)
    if "problem" in found:
        return f'<p class="quiet">{esc(found["problem"])}</p>'
    cells = [[f"<div>{esc(cell)}</div>" for cell in row] for row in found["rows"]]
    return (
        f'<div class="wide">{table(found["columns"], cells, "rows")}</div>'
        f'<p class="quiet">{len(cells)} of {found["total"]:,} rows.</p>'
    )


async def _preview(call: Call, repo: Repo, entry: TreeEntry) -> Mapping[str, Any]:
    """Return the first rows of a Parquet file; only a few files are read at once, each once."""
    kept, readers = call.hub.previews, call.hub.preview_readers
    if entry.content_id not in kept and readers.statistics().tasks_waiting >= _WAITING_PREVIEWS:
        return LATER
    async with readers if entry.content_id not in kept else contextlib.nullcontext():
        if (found := kept.get(entry.content_id)) is None:
            content = call.store.content(repo, entry)
            is_file = isinstance(content, bytes) or hasattr(content, "is_file")
            source = content if is_file else call.store.pieces(content)
            found = await call.in_thread(read_preview, source, entry.size)
            if found is not LATER:
                kept[entry.content_id] = found
        while len(kept) > _KEPT_PREVIEWS:
            kept.pop(next(iter(kept)))
    return found


# ---------------------------------------------------------------------------------------------------------- commits


def show_commits(call: Call) -> Response:
    """Show the history of a revision, a page at a time."""
    repo, revision, start = _repo(call), call.args["rev"], call.number("p", 0) * _COMMITS
    oids = call.store.history(repo, call.store.resolve(repo, revision))
    rows = [_commit_row(repo, call.store.find_commit(repo, oid)) for oid in oids[start : start + _COMMITS]]
    older = f"{_place(repo, 'commits', revision)}?p={call.number('p', 0) + 1}"
    more = f"<p>{anchor(older, 'Older')}</p>" if len(oids) > start + _COMMITS else ""
    return _repo_page(call, repo, "Commits", table(["commit", "title", "author", "date"], rows) + more)


async def show_commit(call: Call) -> Response:
    """Show what a commit changed."""
    repo = _repo(call)
    oid = call.store.resolve(repo, call.args["rev"])
    commit = call.store.find_commit(repo, oid)
    before = await call.in_thread(call.store.tree, repo, commit.parent) if commit.parent else {}
    changes = await call.in_thread(
        lambda: call.store.difference(repo, commit.parent, oid) if commit.parent else dict(call.store.tree(repo, oid))
    )
    shown = dict(islice(sorted(changes.items()), _MAX_ROWS))
    text = ""
    if may_open(call, repo):
        text = await call.in_thread(merging.unified_diff, before, shown, lambda entry: _read(call, repo, entry))
    parent = f" · parent {anchor(_place(repo, 'commit', commit.parent), commit.parent[:10])}" if commit.parent else ""
    files = anchor(_place(repo, "tree", oid), "files")
    about = f'<p class="quiet">{oid} · {esc(commit.author)} · {esc(commit.created_at)}{parent} · {files}</p>'
    title = f"<h2>{esc(commit.title)}</h2>{about}"
    body = f"{title}<pre>{esc(commit.description)}</pre>" if commit.description else title
    more = f"<p>{len(changes):,} files changed; {len(shown):,} are shown.</p>"
    return _repo_page(call, repo, "Commits", body + more + diff(text))


def _commit_row(repo: Repo, commit: Commit) -> list[str]:
    return [
        anchor(_place(repo, "commit", commit.oid), commit.oid[:10]),
        esc(commit.title),
        esc(commit.author),
        _day(commit.created_at),
    ]


# ---------------------------------------------------------------------------------------------------------- community


def show_discussions(call: Call) -> Response:
    """Show the discussions and pull requests of a repository, the newest first."""
    repo = _repo(call)
    query = "select * from discussions where repo=? order by num desc limit ?"
    found = [community.Discussion(*row) for row in call.store.read().execute(query, (repo.id, _MAX_REPOS))]
    rows = [[_discussion_link(repo, one), _kind_of(one.is_pr), esc(one.status), esc(one.author)] for one in found]
    body = table(["title", "", "status", "author"], rows) if rows else "<p>None yet.</p>"
    return _repo_page(call, repo, "Community", body)


async def show_discussion(call: Call) -> Response:
    """Show a discussion with its comments; a pull request with its changes."""
    repo = _repo(call)
    shown = await call.in_thread(community.details, call.store, repo, call.args["num"], with_diff=may_open(call, repo))
    kind, author = _kind_of(shown["isPullRequest"]), shown["author"]["name"]
    about = f"{kind} · {shown['status']} · {author} · {_day(shown['createdAt'])}"
    parts = [f"<h2>#{shown['num']} {esc(shown['title'])}</h2>", f'<p class="quiet">{esc(about)}</p>']
    parts += [_event(repo, event) for event in shown["events"]]
    if shown["isPullRequest"]:
        parts += ["<h2>Changes</h2>", diff(shown.get("diff", "")) if shown.get("diff") else "<p>None.</p>"]
    return _repo_page(call, repo, "Community", "".join(parts))


def _discussion_link(repo: Repo, one: community.Discussion) -> str:
    return anchor(f"/{repo.web_path}/discussions/{one.num}", f"#{one.num} {one.title}")


def _event(repo: Repo, event: dict[str, Any]) -> str:
    who, data = f"{event['author']['name']} · {_day(event['createdAt'])}", event["data"]
    if event["type"] == "comment":
        text = "<p>This comment is hidden.</p>" if data["hidden"] else markdown(data["latest"]["raw"])
        if not data["hidden"] and not data["latest"]["raw"].strip():
            return ""
        return f'<div class="comment"><p class="quiet">{esc(who)}</p>{text}</div>'
    if event["type"] == "commit":
        return f"<p>{anchor(_place(repo, 'commit', data['oid']), data['oid'][:10])} {esc(data['subject'])}</p>"
    fields = ", ".join(f"{key} {value}" for key, value in data.items())
    return f'<p class="quiet">{esc(who)} · {esc(event["type"])}: {esc(fields)}</p>'


def _kind_of(is_pr: Any) -> str:
    return "pull request" if is_pr else "discussion"


# ---------------------------------------------------------------------------------------------------------- the rest


async def show_bucket(call: Call) -> Response:
    """Show the first files of a bucket."""
    bucket = buckets.find(call, f"{call.args['ns']}/{call.args['name']}")
    found = await call.in_thread(lambda: list(islice(bucketstore.walk(call.store.read(), bucket), _MAX_ROWS)))
    base = f"/buckets/{bucket.name}/resolve"
    rows = [[anchor(f"{base}/{quote(file.path)}", file.path, download=True), _size(file.size)] for file in found]
    return _page(call, f"buckets/{bucket.name}", table(["file", "size"], rows) if rows else "<p>Empty.</p>")


# ---------------------------------------------------------------------------------------------------------- pieces


def _repo(call: Call) -> Repo:
    if call.args["ns"] in RESERVED:
        if call.args["ns"].removesuffix("s") in KINDS:  # /datasets/squad: a name without a namespace
            raise call.repo_not_found(call.args["name"])
        raise not_offered(call.request.method, call.request.url.path)
    return call.repo()


def _repo_page(call: Call, repo: Repo, tab: str, body: str) -> Response:
    tabs = {"Card": "", "Files": "/tree/main", "Commits": "/commits/main", "Community": "/discussions"}
    links = [
        anchor(f"/{repo.web_path}{path}", name, aria_current="page" if name == tab else "")
        for name, path in tabs.items()
    ]
    return _page(call, repo.web_path, f"{_badges(repo)}<nav>{''.join(links)}</nav>{body}")


def _page(call: Call, title: str, body: str) -> Response:
    return page(title, body, user=name_of(call))


def _name(call: Call) -> str:
    return call.user.name if call.user else ""


def _badges(repo: Repo) -> str:
    words = [repo.visibility if repo.visibility != "public" else "", "gated" if repo.gated else ""]
    return "".join(f'<span class="tag">{esc(word)}</span>' for word in words if word)


def _place(repo: Repo, view: str, revision: str, path: str = "") -> str:
    """Return the address of a view of a revision; its parts are quoted here."""
    return f"/{repo.web_path}/{view}/{quote(revision, safe='')}/{quote(path)}".rstrip("/")


def _read(call: Call, repo: Repo, entry: TreeEntry) -> bytes:
    return b"".join(call.store.pieces(call.store.content(repo, entry)))


def _day(moment: str) -> str:
    return moment[:16].replace("T", " ")


def _size(number: int) -> str:
    amount, units = float(number), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:,.0f} {units[0]}" if units[0] == "B" else f"{amount:,.1f} {units[0]}"


def _routes() -> Iterator[Route]:
    shapes: dict[str, Handler] = {
        "": show_repo,
        "/tree/{rev}": show_tree,
        "/tree/{rev}/{path...}": show_tree,
        "/blob/{rev}/{path...}": show_blob,
        "/commits/{rev}": show_commits,
        "/commit/{rev}": show_commit,
        "/discussions": show_discussions,
        "/discussions/{num}": show_discussion,
    }
    for prefix in ("/{kinds}/{ns}/{name}", "/{ns}/{name}"):
        for shape, handler in shapes.items():
            yield Route("GET", prefix + shape, handler, on_error=failed)


ROUTES = (
    Route("GET", "/", show_home, on_error=failed),
    Route("GET", "/buckets/{ns}/{name}", show_bucket, on_error=failed),
    *_routes(),
    Route("GET", "/{ns}", show_home, on_error=failed),
)
