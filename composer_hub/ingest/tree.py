"""Build a session from a tree of records: every message once, every step with exactly what the model read before it.

In: the `Node`s of a tree, in file order. Out: a `Session`.

A step is one API message, which a file may spread over many nodes. Its prompt is the walk from that message to the
root, not the order of the file. Results of parallel calls are on sibling nodes and are recovered. A compaction cuts the
walk (and may keep a segment from before it). A missing parent is replaced by the node before it and counted. Rewinds
and forks are branches; all of them are kept.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from composer_hub.harnesses import family_of
from composer_hub.ingest.assemble import TraceFacts, finish_session, step_id_of, system_message
from composer_hub.ingest.report import NAMELESS, FileReport
from composer_hub.records import Message, Ranges, Step, ToolCall, ranges
from composer_hub.session import NO_USAGE, ResultFlag, Session, Thought, Usage

ORPHAN = "orphan_result"
MISSING = "missing_result"
_NOTHING_KEPT = ("", "")
MAX_LINKS = 1000
"""Most links between a result and its call, if several calls have its id."""
REASONING_RANK = {"absent": 0, "encrypted": 1, "summary": 2, "plain": 3}


@dataclass(slots=True)
class Node:
    """One record of a session file. Records without prompt text are nodes without messages: links of the chain.

    An assistant record is a piece of the API message `turn`; `build_session` merges the pieces into one assistant
    message. A user record may have several messages (tool results, then text).
    """

    node_id: str
    parent: str = ""  # "" at a root
    messages: tuple[Message, ...] = ()
    turn: str = ""
    flags: tuple[ResultFlag | None, ...] = ()  # one per message, or empty
    model: str = ""
    reasoning_status: str = "absent"
    is_target: bool = True  # False: the harness wrote this assistant message, so it is not a step
    is_shown: bool = True  # False: later prompts leave this assistant message out, e.g. because it was aborted
    cut: bool = False  # a compaction: nothing above this node is read below it
    kept: tuple[str, str] = _NOTHING_KEPT  # first and last node of what is read again after this one
    logical_parent: str = ""  # the node before a cut in the conversation
    usage: Usage = NO_USAGE  # of the model call that wrote the turn
    inexact: str = ""  # why prompts from here down are not exactly what the model read


def build_session(nodes: Iterable[Node], facts: TraceFacts, report: FileReport) -> Session | None:
    """Build the session of a tree-like format."""
    ordered = in_reading_order(list(nodes), report)
    return _Builder(ordered, facts, report).build()


def in_reading_order(nodes: list[Node], report: FileReport) -> list[Node]:
    """Order parents before children and otherwise as in the file.

    A parent that is missing, or that would close a circle, is replaced by the node before it. Prompts below are then
    marked as not exact.
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


@dataclass(slots=True)
class _Turn:
    """An API message put together from its pieces."""

    pieces: list[Message]
    message: Message  # the pieces as one, once all are known
    slot: int
    model: str
    reasoning_status: str
    is_target: bool
    is_shown: bool
    flag: ResultFlag | None
    usage: Usage
    answers: list[tuple[int, int]] = field(default_factory=list)  # (position, slot) of its results, in file order
    previous: str = ""  # the turn before it, also across compactions: for branches


class _Walk(NamedTuple):
    """The messages read down to a node: closed ranges of the pool, and the turn that still collects its results."""

    closed: Ranges = ()
    turn: str = ""
    answered: tuple[int, ...] = ()  # slots of results seen on the path since `turn` began
    extras: tuple[int, ...] = ()  # slots of other messages since then
    reasons: tuple[str, ...] = ()
    last_turn: str = ""  # as `turn`, but kept over a cut
    waiting: tuple[str, ...] = ()  # turns with a call whose result is in the file, but not in what is closed
    is_missing: bool = False  # a call in what is closed has no result in the file


_START = _Walk(closed=((0, 1),))
"""The system prompt has been read, and nothing else."""


class _Builder:
    """One pass over the nodes, parents first. Slots number messages as met; pool indices are given in reading order, so
    that a prompt is a few ranges and always ends before its action."""

    def __init__(self, nodes: list[Node], facts: TraceFacts, report: FileReport) -> None:
        self.nodes, self.facts, self.report = nodes, facts, report
        self.trace_id = facts.trace_id()
        self.position = {node.node_id: at for at, node in enumerate(nodes)}
        self.slots: list[Message] = [system_message(facts)]
        self.slot_flags: dict[int, ResultFlag] = {}
        self.node_slots: dict[str, tuple[int, ...]] = {}
        self.turns: dict[str, _Turn] = {}
        self.thoughts: list[Thought] = []
        self.segments: dict[str, str] = {}  # node -> the nearest cut above it, or ""
        self.home: dict[str, str] = {}  # turn -> the segment of its first piece
        self.copies: dict[str, str] = {}  # turn written down once more below a cut -> the turn
        self.turns_of_call: dict[
            str, list[str]
        ] = {}  # most ids are unique, but some servers restart them with each message
        self.turn_of_copied_call: dict[tuple[str, str], str] = {}  # (segment, call) -> the copy that makes it
        self.turn_of_result: dict[int, str] = {}  # slot -> turn
        self.orphans: set[int] = set()  # slots of results whose call is nowhere
        self.index_of: dict[int, int] = {0: 0}  # slot -> pool index
        self.pool: list[Message] = [self.slots[0]]
        self.walks: dict[str, _Walk] = {}
        self.latest = _Walk()  # to the node before, if a compaction does not name the node that it follows
        self.met: set[str] = set()  # turns whose first piece has been walked to
        self.read: dict[str, tuple[Ranges, tuple[str, ...]]] = {}  # target -> prompt, and why it is not exact

    def build(self) -> Session | None:
        for node in self.nodes:
            self._take(node)
        self._join_pieces()
        self._match_results()
        self.report.add("orphan_results", len(self.orphans))
        for node in self.nodes:
            self.latest = self.walks[node.node_id] = self._walk_to(node)
        for turn in self.turns.values():  # results and questions that no later step read
            self._emit(turn.slot, *(slot for _, slot in turn.answers))
        for node in self.nodes:
            self._emit(*self.node_slots.get(node.node_id, ()))
        return self._finish()

    # ---- first pass: messages and turns

    def _take(self, node: Node) -> None:
        segment = node.node_id if node.cut else self.segments.get(node.parent, "")
        self.segments[node.node_id] = segment
        if not node.messages:
            return
        if not node.turn:
            self.node_slots[node.node_id] = tuple(self._slot(node, i) for i in range(len(node.messages)))
            return
        if self.home.setdefault(node.turn, segment) != segment:
            # The id is on both sides of a cut: messages above it must not be read below.
            original, node.turn = node.turn, f"{node.turn}@{segment}"
            self.copies[node.turn] = original
        piece, flag = self._with_named_calls(node), (node.flags[0] if node.flags else None)
        turn = self.turns.get(node.turn)
        if turn is None:
            turn = _Turn(
                [piece],
                piece,
                len(self.slots),
                node.model,
                node.reasoning_status,
                node.is_target,
                node.is_shown,
                flag,
                node.usage,
            )
            self.turns[node.turn] = turn
            self.slots.append(piece)
        else:
            self.report.add("merged")
            turn.pieces.append(piece)
            turn.model = turn.model or node.model
            turn.is_target = turn.is_target and node.is_target
            turn.flag = flag or turn.flag
            turn.usage |= node.usage
            turn.reasoning_status = max(turn.reasoning_status, node.reasoning_status, key=REASONING_RANK.__getitem__)
        for call in piece.tool_calls:
            asking = self.turns_of_call.setdefault(call.call_id, [])
            if node.turn not in asking[-1:]:
                asking.append(node.turn)
            if node.turn in self.copies:
                self.turn_of_copied_call[segment, call.call_id] = node.turn

    def _with_named_calls(self, node: Node) -> Message:
        """Leave out calls without a name: no tool was asked for, and no template can write them."""
        piece = node.messages[0]
        calls = tuple(call for call in piece.tool_calls if call.name)
        if len(calls) == len(piece.tool_calls):
            return piece
        self.report.unknown(NAMELESS)
        unread = self.report.take_unread()
        node.inexact = node.inexact or unread
        return dataclasses.replace(piece, tool_calls=calls)

    def _join_pieces(self) -> None:
        """Merge the pieces of each turn into one message.

        An API message without text or calls becomes a link: it is cut-off thinking, which is never sent again. A copy
        without anything new is read, but is not a step.
        """
        for key, turn in list(self.turns.items()):
            turn.message = self.slots[turn.slot] = _joined(turn.pieces)
            if not turn.message.content and not turn.message.tool_calls:
                del self.turns[key]
                if turn.usage.context:
                    self.thoughts.append(Thought(f"{self.facts.source}:{key}", turn.model, turn.usage))
                self.report.add("empty_actions")
        for copy, original in self.copies.items():
            if copy in self.turns and original in self.turns and _says_no_more(self.turns[copy], self.turns[original]):
                self.turns[copy].is_target = False
                self.report.add("copied_messages")

    def _slot(self, node: Node, i: int) -> int:
        self.slots.append(node.messages[i])
        if node.flags and (flag := node.flags[i]):
            self.slot_flags[len(self.slots) - 1] = flag
        return len(self.slots) - 1

    def _match_results(self) -> None:
        """Attach the first result of each call to its turn; results without a call are left out."""
        for at, node in enumerate(self.nodes):
            for slot in self.node_slots.get(node.node_id, ()):
                message = self.slots[slot]
                if message.role != "tool":
                    continue
                if (asking := _asking(node.messages, message.tool_call_id)) is not None:
                    self.slots[slot] = _named(message, asking)
                elif (turn := self._asking_turn(node, message.tool_call_id)) is not None:
                    self.turn_of_result[slot] = turn
                    self.turns[turn].answers.append((at, slot))
                    self.slots[slot] = _named(message, self.turns[turn].message)
                else:
                    self.orphans.add(slot)

    def _asking_turn(self, node: Node, call_id: str) -> str | None:
        """Return the turn that a result answers; below a cut, a copy of the call comes first.

        If several turns used one id, it is the nearest above the result, else the first.
        """
        copied = self.turn_of_copied_call.get((self.segments[node.node_id], call_id)) if self.copies else None
        asking = self.turns_of_call.get(call_id, [])
        if copied or len(asking) < 2:
            return copied or next(iter(asking), None)
        above = self.position.get(node.parent)
        for _ in range(MAX_LINKS):
            if above is None or self.nodes[above].turn in asking:
                break
            above = self.position.get(self.nodes[above].parent)
        return self.nodes[above].turn if above is not None and self.nodes[above].turn in asking else asking[0]

    # ---- second pass: walks

    def _walk_to(self, node: Node) -> _Walk:
        if node.cut:
            above = self.walks.get(node.logical_parent) or self.walks.get(node.parent) or self.latest
            return self._extended(_START._replace(last_turn=above.last_turn), node)
        above = self.walks.get(node.parent) or _START
        is_link = not node.messages and not node.inexact and node.kept == _NOTHING_KEPT
        return above if is_link else self._extended(above, node)

    def _extended(self, walk: _Walk, node: Node) -> _Walk:
        """Return the walk one node further down."""
        if node.inexact and node.inexact not in walk.reasons:
            walk = walk._replace(reasons=(*walk.reasons, node.inexact))
        if node.turn in self.turns:
            walk = self._into_turn(walk, node)
        else:
            for slot in self.node_slots.get(node.node_id, ()):
                walk = self._into_message(walk, slot)
        if node.kept != _NOTHING_KEPT:
            for kept in self._segment(*node.kept, node.node_id):
                walk = walk if kept.cut else self._extended(walk, kept)
        return walk

    def _into_turn(self, walk: _Walk, node: Node) -> _Walk:
        turn = self.turns[node.turn]
        if node.turn == walk.turn or self._holds(walk, turn.slot):
            return walk
        closed, waiting, is_missing = self._close(walk, self.position[node.node_id])
        self._emit(turn.slot)
        if node.turn not in self.met:
            self.met.add(node.turn)
            turn.previous = walk.last_turn
            if turn.is_target:
                self.read[node.turn] = (closed, (*walk.reasons, MISSING) if waiting or is_missing else walk.reasons)
        return _Walk(closed, node.turn, (), (), walk.reasons, node.turn, waiting, is_missing)

    def _into_message(self, walk: _Walk, slot: int) -> _Walk:
        message = self.slots[slot]
        if message.role != "tool":
            # A compaction may keep messages that the conversation passes again below it.
            return walk if self._holds(walk, slot) else walk._replace(extras=(*walk.extras, slot))
        turn = self.turn_of_result.get(slot)
        if turn is not None and turn == walk.turn:
            return walk._replace(answered=(*walk.answered, slot))
        if turn is not None and self._holds(walk, self.turns[turn].slot):
            if any(self._holds(walk, other) for other in self._answers_to(turn, message.tool_call_id)):
                return walk
            return walk._replace(extras=(*walk.extras, slot))
        if turn is None and slot not in self.orphans:
            return walk._replace(extras=(*walk.extras, slot))
        return walk if ORPHAN in walk.reasons else walk._replace(reasons=(*walk.reasons, ORPHAN))

    def _answers_to(self, turn: str, call_id: str) -> list[int]:
        return [slot for _, slot in self.turns[turn].answers if self.slots[slot].tool_call_id == call_id]

    def _holds(self, walk: _Walk, slot: int) -> bool:
        if slot in walk.extras or slot in walk.answered:
            return True
        return _within(walk.closed, self.index_of.get(slot))

    def _close(self, walk: _Walk, before: int) -> tuple[Ranges, tuple[str, ...], bool]:
        """Return all that has been read, as ranges (the open turn, the results of its calls, then the rest), the turns
        that wait for a result, and whether a call has none in the whole file."""
        slots: list[int] = []
        waiting, is_missing = walk.waiting, walk.is_missing
        if walk.turn and (turn := self.turns[walk.turn]).is_shown:
            results = self._results(turn, walk.answered, before)
            slots = [turn.slot, *results]
            if len(results) < len(turn.message.tool_calls):
                num_answered = self._num_answered(turn)
                is_missing = is_missing or num_answered < len(turn.message.tool_calls)
                waiting = (*waiting, walk.turn) if num_answered > len(results) else waiting
        slots += walk.extras
        self._emit(*slots)
        closed = ranges((self.index_of[slot] for slot in slots), walk.closed)
        if waiting:
            closed, waiting = self._with_late_results(closed, waiting, before)
        return closed, waiting, is_missing

    def _num_answered(self, turn: _Turn) -> int:
        return len({self.slots[slot].tool_call_id for _, slot in turn.answers})

    def _with_late_results(self, closed: Ranges, turns: tuple[str, ...], before: int) -> tuple[Ranges, tuple[str, ...]]:
        """Insert results that came after their turn was closed; return the turns that still wait for one."""
        waiting: list[str] = []
        for key in turns:
            turn = self.turns[key]
            held = [slot for _, slot in turn.answers if _within(closed, self.index_of.get(slot))]
            late = [slot for slot in self._results(turn, held, before) if slot not in held]
            self._emit(*late)
            last = max((self.index_of[slot] for slot in held), default=self.index_of[turn.slot])
            closed = _with_after(closed, last, [self.index_of[slot] for slot in late])
            if len(held) + len(late) < self._num_answered(turn):
                waiting.append(key)
        return closed, tuple(waiting)

    def _results(self, turn: _Turn, answered: Sequence[int] = (), before: int | None = None) -> list[int]:
        """Return one result a call: the one on the path, else the first that had come before the given position."""
        chosen: dict[str, int] = {}
        for slot in answered:
            chosen.setdefault(self.slots[slot].tool_call_id, slot)
        for at, slot in turn.answers:
            if before is None or at < before:
                chosen.setdefault(self.slots[slot].tool_call_id, slot)
        return sorted(chosen.values())

    def _segment(self, head: str, tail: str, anchor: str) -> list[Node]:
        """Return the nodes from `head` down to `tail`, or none if they are not one chain.

        A compaction may name records that are written after it. Those below its anchor are on the walk anyway.
        """
        chain: list[Node] = []
        found: list[Node] = []
        at = self.position.get(tail)
        while at is not None and len(chain) < len(self.nodes) and self.nodes[at].node_id != anchor:
            chain.append(self.nodes[at])
            if self.nodes[at].node_id == head:
                found = chain[::-1]
            at = self.position.get(self.nodes[at].parent)
        return [] if at is not None and self.nodes[at].node_id == anchor else found

    def _emit(self, *slots: int) -> None:
        """Give messages their place in the pool, once."""
        for slot in slots:
            if slot not in self.index_of and slot not in self.orphans:
                self.index_of[slot] = len(self.pool)
                self.pool.append(self.slots[slot])

    def _step(self, key: str, index: int, on_main_branch: bool) -> Step:
        turn, (prompt, reasons) = self.turns[key], self.read[key]
        return Step(
            step_id=step_id_of(self.trace_id, key),
            index=index,
            action=self.index_of[turn.slot],
            prompt=prompt,
            results=tuple(self.index_of[slot] for slot in self._results(turn)),
            model=turn.model,
            family=family_of(turn.model),
            reasoning_status=turn.reasoning_status,
            prefix_exact=not reasons,
            prefix_reason="; ".join(reasons),
            on_main_branch=on_main_branch,
        )

    # ---- the end

    def _finish(self) -> Session | None:
        main = self._main_branch()
        in_order = sorted(self.read, key=lambda key: self.index_of[self.turns[key].slot])
        steps = [self._step(key, index, key in main) for index, key in enumerate(in_order)]
        keys = [f"{self.facts.source}:{key}" for key in in_order]
        flags = {self.index_of[slot]: flag for slot, flag in self.slot_flags.items() if slot in self.index_of}
        flags |= {self.index_of[turn.slot]: turn.flag for turn in self.turns.values() if turn.flag}
        source = "recorded" if self.facts.system_prompt else "synthetic"
        usages = [self.turns[key].usage for key in in_order]
        session = finish_session(self.facts, tuple(self.pool), steps, keys, flags, source, usages, self.report)
        return dataclasses.replace(session, thoughts=tuple(self.thoughts)) if session else None

    def _main_branch(self) -> set[str]:
        """Return the turns from the root to the last message of the file; count the forks."""
        followers: dict[str, int] = {}
        for turn in self.turns.values():
            followers[turn.previous] = followers.get(turn.previous, 0) + 1
        self.report.add("forks", sum(count - 1 for count in followers.values()))
        self.report.add("boundaries", sum(node.cut for node in self.nodes))
        leaf = next((node for node in reversed(self.nodes) if node.messages), None)
        key, main = self.walks[leaf.node_id].last_turn if leaf else "", set()
        while key and key not in main:
            main.add(key)
            key = self.turns[key].previous
        return main


def _named(result: Message, asking: Message) -> Message:
    """Return the result with the name of the tool that gave it."""
    name = next((call.name for call in asking.tool_calls if call.call_id == result.tool_call_id), "")
    return result if result.name else Message("tool", result.content, (), result.tool_call_id, name)


def _asking(messages: Sequence[Message], call_id: str) -> Message | None:
    """Return the message that holds a call; a node may carry a whole history, as after a compaction."""
    return next((message for message in messages for call in message.tool_calls if call.call_id == call_id), None)


def _joined(pieces: Sequence[Message]) -> Message:
    """Merge the pieces of a message; repeated text and calls count once."""
    if len(pieces) == 1:
        return pieces[0]
    calls: dict[str, ToolCall] = {}
    for call in (call for piece in pieces for call in piece.tool_calls):
        calls.setdefault(call.call_id, call)
    return Message(
        "assistant",
        "\n".join(dict.fromkeys(piece.content for piece in pieces if piece.content)),
        tuple(calls.values()),
        reasoning_content="\n".join(dict.fromkeys(p.reasoning_content for p in pieces if p.reasoning_content)),
    )


def _says_no_more(copy: _Turn, original: _Turn) -> bool:
    texts = {piece.content for piece in original.pieces} | {original.message.content, ""}
    ids = {call.call_id for call in original.message.tool_calls}
    return all(piece.content in texts for piece in copy.pieces) and all(
        call.call_id in ids for call in copy.message.tool_calls
    )


def _within(closed: Ranges, index: int | None) -> bool:
    return index is not None and any(start <= index < stop for start, stop in reversed(closed))


def _with_after(closed: Ranges, last: int, indices: Sequence[int]) -> Ranges:
    """Insert indices into ranges, after an index in one of them."""
    if not indices:
        return closed
    at = next(number for number, (start, stop) in enumerate(closed) if start <= last < stop)
    start, stop = closed[at]
    rest = ((last + 1, stop),) if last + 1 < stop else ()
    return (*ranges(indices, (*closed[:at], (start, last + 1))), *rest, *closed[at + 1 :])
