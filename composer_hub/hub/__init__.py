"""Rows, cards and models to and from versions on the Hub, the embedded Hub, or in a folder.

from composer_hub import hub

where = hub.destination("local")
hub.publish(where, "me/traces", tables, card)
for trace in hub.load(where, "me/traces@v1.0.0").records(Trace, "traces"): ...
"""

from composer_hub.hub.cards import Card, CardError, card_template
from composer_hub.hub.destinations import HubDestination, Patience, destination, embedded_hub
from composer_hub.hub.folder import FolderDestination
from composer_hub.hub.loading import LoadError, Version, commit_of, decode_rows, load, load_states, load_traces, newest
from composer_hub.hub.manifest import MANIFEST, ManifestError, read_manifest
from composer_hub.hub.models import Model, ModelError, digest_of, fetch_model, publish_model
from composer_hub.hub.protocol import Add, Change, Delete, Destination, HubError, HubRefused, Moved
from composer_hub.hub.publishing import (
    VERSION_MARK,
    Draft,
    Lineage,
    NothingToPublish,
    Parent,
    Published,
    PublishError,
    PublishOptions,
    PublishPlan,
    check_target,
    check_visibility,
    dry_run,
    publish,
    update,
)
from composer_hub.hub.refs import RefError, RepoRef, check_repo, parse_ref
from composer_hub.hub.reviews import REVIEWS, ReviewFile
from composer_hub.hub.tables import RowWriter, Table, TableError
from composer_hub.hub.versions import Ancestor, Diff, diff, lineage

__all__ = [
    "MANIFEST",
    "REVIEWS",
    "VERSION_MARK",
    "Add",
    "Ancestor",
    "Card",
    "CardError",
    "Change",
    "Delete",
    "Destination",
    "Diff",
    "Draft",
    "FolderDestination",
    "HubDestination",
    "HubError",
    "HubRefused",
    "Lineage",
    "LoadError",
    "ManifestError",
    "Model",
    "ModelError",
    "Moved",
    "NothingToPublish",
    "Parent",
    "Patience",
    "PublishError",
    "PublishOptions",
    "PublishPlan",
    "Published",
    "RefError",
    "RepoRef",
    "ReviewFile",
    "RowWriter",
    "Table",
    "TableError",
    "Version",
    "card_template",
    "check_repo",
    "check_target",
    "check_visibility",
    "commit_of",
    "decode_rows",
    "destination",
    "diff",
    "digest_of",
    "dry_run",
    "embedded_hub",
    "fetch_model",
    "lineage",
    "load",
    "load_states",
    "load_traces",
    "newest",
    "parse_ref",
    "publish",
    "publish_model",
    "read_manifest",
    "update",
]
