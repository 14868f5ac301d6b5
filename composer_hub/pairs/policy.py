"""When votes become a pair: one policy, followed by the cascade that asks for votes and by the pairs made from them.

In: normal forms of actions. Out: whether two teachers agree, whether an action repeats the student's, and how many of
the votes that count must agree. A replay run leaves a `Poll` beside its votes, so that pairs are never made by a policy
that those votes cannot answer.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from composer_hub import exits
from composer_hub.actions.forms import LEVELS, NormalForm, close, groups, is_part_of, same, same_aim
from composer_hub.named_files import write_whole
from composer_hub.options import option
from composer_hub.records import JsonObject, from_row, misfits

POLL_FILE = "poll.json"


class PolicyError(exits.UsageError):
    """A policy that contradicts itself, or that the recorded votes cannot answer."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When the votes at a step become a pair."""

    # A strict majority of the votes that count is needed in any case.
    min_agree: int = option(2, "Teachers that must agree.", min=2)
    agree_level: str = option("L2", "Level at which they must agree.", choices=LEVELS)
    veto_level: str = option("L3", "Level at which the student must differ from them.", choices=LEVELS)
    exclude_same_family: bool = option(
        True, "Leave out teachers of the student's family, or count them.", flag="--no-same-family/--same-family"
    )
    max_prompt_chars: int | None = option(None, "Leave out steps with longer prompts.", min=1)

    def __post_init__(self) -> None:
        if self.min_agree < 2:
            raise PolicyError(f"min_agree is {self.min_agree}; a pair needs at least 2 teachers that agree.")
        for level in (self.agree_level, self.veto_level):
            if level not in LEVELS:
                raise PolicyError(f"{level!r} is not a level; choose one of {', '.join(LEVELS)}.")
        if self.agree_level > self.veto_level:
            raise PolicyError(
                f"The veto level {self.veto_level} is stricter than the level of agreement {self.agree_level}: "
                "a pair could prefer an action over itself. Choose a veto level that is the same or coarser."
            )

    def needed(self, num_votes: int) -> int:
        """Return how many of the votes that count must agree; a majority leaves no second group of the same size."""
        return max(self.min_agree, num_votes // 2 + 1)

    def too_few(self, num_teachers: int) -> str:
        """Return why so few teachers give no pair, "" if they are enough."""
        if num_teachers >= self.min_agree:
            return ""
        return f"No step can give a pair: {self.min_agree} teachers must agree, but only {num_teachers} will be asked."

    def agree(self, one: NormalForm, other: NormalForm) -> bool:
        """Return whether two teachers chose the same action, as far as a difference is certain to matter."""
        # An answer that is not a valid action agrees with nothing, not even with its equal.
        if one.problem:
            return False
        return same(one, other, self.agree_level) or (
            self.agree_level >= "L2" and (close(one, other, "L3") or same_aim(one, other))
        )

    def groups(self, forms: Sequence[NormalForm]) -> list[list[int]]:
        """Return the places of the forms that agree; all of a group agree with each other."""
        return groups(forms, self.agree)

    def veto(self, student: NormalForm, action: NormalForm) -> str:
        """Return why an action is too close to the student's to be preferred over it, "" if it is not."""
        if close(student, action, self.veto_level):
            return "too_close_to_student"
        if is_part_of(action, student, self.veto_level) or is_part_of(student, action, self.veto_level):
            # Another number of parallel calls is a matter of pace, not of opinion.
            return "part_of_student"
        if action.results and action.results == student.results:
            return "same_result_as_student"
        return "same_words" if same_aim(student, action) else ""


@dataclass(frozen=True, slots=True)
class PanelTeacher:
    """A teacher of a run, as cards name it; prices are in dollars per million tokens."""

    name: str
    model: str
    family: str
    served_from: str  # host, and the provider behind a router
    terms: str
    is_loopback: bool
    input_usd: float
    cached_usd: float | None
    output_usd: float
    price_stamp: str
    identity: str  # of its answers: another route, limit or parameter gives other answers
    max_tokens: int = 0
    params: JsonObject = field(default_factory=dict)

    @property
    def is_scripted(self) -> bool:
        return self.family.startswith("scripted")


@dataclass(frozen=True, slots=True)
class PollCounts:
    """The steps of a run's traces after the run."""

    num_traces: int = 0
    num_steps: int = 0  # of all traces of the run, asked about or not
    num_answered: int = 0  # steps about which nothing is left to ask
    num_stopped_early: int = 0  # steps that the order ended before every teacher was asked
    num_audited: int = 0  # of those, steps that were asked in full
    num_missed: int = 0  # of the audited ones, steps with a pair that the order would have missed
    recall: float | None = None  # share of the pairs that the order finds
    recall_low: float | None = None
    recall_high: float | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """How a run collected its votes: who was asked, in which order, and for which policy."""

    order: str  # all, sequential, cascade or auto
    teachers: tuple[str, ...]
    policy: Policy = Policy()
    audit: float = 0.0  # share of the steps asked in full
    repeat: float = 0.0  # share of the steps on which the first teacher is asked twice
    panel: tuple[PanelTeacher, ...] = ()
    counts: PollCounts | None = None
    pilot: int = 0  # steps that were asked of every teacher before the rest was bought
    max_usd_per_pair: float | None = None  # the most that a further pair may cost under the order auto
    judge: PanelTeacher | None = None

    def write(self, folder: Path) -> None:
        """Record the poll in the folder of its run."""
        text = json.dumps(dataclasses.asdict(self), indent=1)
        write_whole(folder / POLL_FILE, f"{text}\n".encode())

    @classmethod
    def read(cls, folder: Path) -> Poll:
        """Return the poll recorded with a run."""
        path = folder / POLL_FILE
        try:
            row = json.loads(path.read_text(encoding="utf-8"))
            poll = from_row(cls, {**row, "policy": dataclasses.asdict(Policy(**row["policy"]))})
            if not (wrong := misfits(poll)):
                return poll
            problem = f"cannot be read (it has other values than a run writes: {', '.join(wrong)})"
        except FileNotFoundError:
            problem = "is missing"
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problem = f"cannot be read ({error})"
        raise PolicyError(
            f"{path} {problem}, so it is unknown which policy the votes can answer. Run the same `composer-hub replay "
            f"run` with --run {shlex.quote(str(folder))} again: it writes the file, and no answer is paid for twice."
        )

    def check(self, policy: Policy) -> None:
        """Refuse a policy under which these votes would silently give fewer pairs than the teachers agree on."""
        if policy.min_agree > len(self.teachers):
            names = ", ".join(self.teachers)
            raise PolicyError(
                f"{policy.min_agree} teachers cannot agree: the run asked {len(self.teachers)} ({names}). "
                "Run `composer-hub replay run` with more --teachers, or choose a smaller --min-agree."
            )
        if gaps := self._gaps(policy):
            reasons = "; ".join(reason for reason, _ in gaps)
            options = " ".join(option for _, option in gaps if option)
            raise PolicyError(
                f"These votes cannot answer that policy: {reasons}. Run the same `composer-hub replay run` again with "
                f"{options or 'the policy you want'}: only the missing answers are paid for."
            )

    def _gaps(self, policy: Policy) -> Sequence[tuple[str, str]]:
        """Return each reason why votes are missing for a policy, with the option that makes replay ask for them."""
        asked, gaps = self.policy, list[tuple[str, str]]()
        if self.order != "all":
            for name, stop in (("min_agree", "teachers that agreed"), ("agree_level", "the level of agreement")):
                wanted, given = getattr(policy, name), getattr(asked, name)
                if wanted != given:
                    reason = f"the order {self.order} stopped asking by {stop} ({given}, not {wanted})"
                    gaps.append((reason, f"--{name.replace('_', '-')} {wanted}"))
            if policy.exclude_same_family and not asked.exclude_same_family:
                reason = (
                    f"the order {self.order} stopped asking once teachers agreed, the student's own family among them"
                )
                gaps.append((reason, "--no-same-family"))
        if self.order in ("cascade", "auto") and policy.veto_level < asked.veto_level:
            reason = f"the order {self.order} ended where a teacher repeats the student at {asked.veto_level}"
            gaps.append((reason, f"--veto-level {policy.veto_level}"))
        if asked.exclude_same_family and not policy.exclude_same_family:
            gaps.append(("teachers of the student's own family were not asked", "--same-family"))
        limit = asked.max_prompt_chars
        if limit is not None and (policy.max_prompt_chars is None or policy.max_prompt_chars > limit):
            wanted = policy.max_prompt_chars
            reason = f"nobody was asked about prompts above {limit:,} characters"
            gaps.append((reason, f"--max-prompt-chars {wanted}" if wanted else "no --max-prompt-chars"))
        return gaps
