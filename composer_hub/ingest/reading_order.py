"""The order in which a tree of records is walked: parents before children, whatever the file says.

In: the `Node`s of a file. Out: the same nodes, each with a parent that stands before it.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from composer_hub.ingest.report import FileReport

if TYPE_CHECKING:
    from composer_hub.ingest.tree import Node


def in_reading_order(nodes: list[Node], report: FileReport) -> list[Node]:
    """Order parents before children and otherwise as in the file.

    A parent that is not in the file, or that would close a circle, is replaced by the node before it; the prompts below
    are then marked as not exact.
    """
    known: dict[str, int] = {}
    for at, node in enumerate(nodes):
        known.setdefault(node.node_id, at)
    before = ""
    for node in nodes:
        if node.parent == node.node_id or (node.parent and node.parent not in known):
            _bridge(node, before, report)
        before = node.node_id
    return _topological(nodes, known, report)


def _bridge(node: Node, parent: str, report: FileReport) -> None:
    node.parent = parent
    node.inexact = node.inexact or "missing_parent"
    report.add("bridged")


def _topological(nodes: list[Node], known: dict[str, int], report: FileReport) -> list[Node]:
    if all(not node.parent or known[node.parent] < at for at, node in enumerate(nodes)):
        return nodes  # as in nearly every file
    children: dict[int, list[int]] = {}
    ready: list[int] = []
    for at, node in enumerate(nodes):
        if node.parent:
            children.setdefault(known[node.parent], []).append(at)
        else:
            ready.append(at)
    order: list[Node] = []
    placed = bytearray(len(nodes))
    for first in range(len(nodes) + 1):
        while ready:
            at = heapq.heappop(ready)
            placed[at] = True
            order.append(nodes[at])
            for child in children.get(at, ()):
                if not placed[child]:
                    heapq.heappush(ready, child)
        if first < len(nodes) and not placed[first]:  # on a circle of parents, or below one
            _bridge(nodes[first], order[-1].node_id if order else "", report)
            ready.append(first)
    return order
