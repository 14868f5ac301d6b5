"""A small world whose answer key is known: an API that has moved on since the model was trained.

A task names operations and a value; the model applies each operation to the last value through one tool, then answers
with the final value. Each operation has a true name and a true argument today, and old ones that the model remembers:
it knows some operations, is in two minds about some, and is wrong about the others. Nothing in the prompt tells the
true names. A wrong name or argument is an error that does not say what is right; the hint does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from composer_hub.hints import SiteContext
from composer_hub.records import Hint

VERBS = tuple("get fetch read load query pull list find".split())
NOUNS = tuple(
    "order user cart price stock review city hotel flight train song album movie actor file folder branch commit "
    "issue label team player match ticket".split()
)
KEYS = tuple("id name key ref path uid".split())
VALUES = tuple(f"v{number}" for number in range(40))
ERROR = "validation error: "
DID_YOU_MEAN = "Reminder: did you mean "
TAKES = "Reminder: the call takes "
# How sure the model is of (the true word, the old word), and how many operations it is so sure of.
BELIEFS = {"known": (0.96, 0.02), "half": (0.45, 0.45), "stale": (0.04, 0.86)}
VERBS_KNOWN = {"known": 10, "half": 7, "stale": 7}
KEYS_KNOWN = {"known": 14, "half": 6, "stale": 4}


@dataclass(frozen=True)
class Regime:
    """How hard the tasks are."""

    lengths: tuple[int, ...]  # numbers of operations, drawn with equal chances
    num_spare: int  # wrong calls that an episode survives
    only_unknown: bool  # leave out operations that the model knows


REGIMES = {
    "dense": Regime((1, 1, 2, 2, 3), 2, False),
    "sparse": Regime((3, 4), 0, True),
}


@dataclass(frozen=True)
class Task:
    operations: tuple[int, ...]
    value: int

    def row(self, number: int, reminders: Sequence[str] = ()) -> dict[str, Any]:
        """Return the task as `GRPOTrainer` takes it; reminders are messages of the user behind it."""
        prompt = [{"role": "user", "content": text} for text in (self.text, *reminders)]
        return {"prompt": prompt, "operations": list(self.operations), "value": self.value, "task_id": number}

    @property
    def text(self) -> str:
        return " ".join([*(NOUNS[one] for one in self.operations), ":", VALUES[self.value]])


class Api:
    """The deployed API of one seed, and what the model believes of it."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"api-{seed}")
        self.verb_class, self.key_class = (_classes(rng, counts) for counts in (VERBS_KNOWN, KEYS_KNOWN))
        self.verbs = [rng.sample(range(len(VERBS)), 2) for _ in NOUNS]  # true, old
        self.keys = [rng.sample(range(len(KEYS)), 2) for _ in NOUNS]
        self.results = [[rng.randrange(len(VALUES)) for _ in VALUES] for _ in NOUNS]

    def verb_belief(self, noun: int) -> list[float]:
        return _belief(self.verb_class[noun], self.verbs[noun], len(VERBS))

    def key_belief(self, noun: int) -> list[float]:
        return _belief(self.key_class[noun], self.keys[noun], len(KEYS))

    def tasks(self, regime: Regime, rng: random.Random) -> Iterator[Task]:
        """Yield tasks without end."""
        pool = [
            noun
            for noun in range(len(NOUNS))
            if not (regime.only_unknown and self.verb_class[noun] == self.key_class[noun] == "known")
        ]
        while True:
            length = rng.choice(regime.lengths)
            yield Task(tuple(rng.choice(pool) for _ in range(length)), rng.randrange(len(VALUES)))

    def true_words(self, noun: int) -> tuple[int, int]:
        return self.verbs[noun][0], self.keys[noun][0]

    def reminders(self, task: Task) -> list[str]:
        """Return the hints that would correct any call of a task."""
        return [key_hint(noun, *self.true_words(noun)) for noun in dict.fromkeys(task.operations)]

    def true_call(self, noun: int, value: int) -> dict[str, str]:
        return arguments(noun, *self.true_words(noun), value)

    def old_call(self, noun: int, value: int) -> dict[str, str]:
        return arguments(noun, self.verbs[noun][1], self.keys[noun][1], value)


def _classes(rng: random.Random, counts: dict[str, int]) -> list[str]:
    return rng.sample([name for name, count in counts.items() for _ in range(count)], len(NOUNS))


def _belief(name: str, words: Sequence[int], count: int) -> list[float]:
    true, old = BELIEFS[name]
    chances = [(1 - true - old) / (count - 2)] * count
    chances[words[0]], chances[words[1]] = true, old
    return chances


def arguments(noun: int, verb: int, key: int, value: int) -> dict[str, str]:
    """Return the arguments of a call."""
    return {"method": f"{NOUNS[noun]}.{VERBS[verb]}", "key": KEYS[key], "value": VALUES[value]}


def method_error(method: str) -> str:
    return f"{ERROR}no method {method}"


def key_error(method: str, key: str) -> str:
    return f"{ERROR}{method} does not take {key}"


def method_hint(noun: int, verb: int) -> str:
    return f"{DID_YOU_MEAN}{NOUNS[noun]}.{VERBS[verb]}"


def key_hint(noun: int, verb: int, key: int) -> str:
    return f"{TAKES}{NOUNS[noun]}.{VERBS[verb]} {KEYS[key]}"


def control_text(hint: str, rng: random.Random) -> str:
    """Return a hint of the same shape that names a random word."""
    if hint.startswith(DID_YOU_MEAN):
        return f"{hint.rpartition('.')[0]}.{rng.choice(VERBS)}"
    return f"{hint.rpartition(' ')[0]} {rng.choice(KEYS)}"


class StaleApi:
    """The environment. One tool; the reward is 1 if every operation was applied in order and the answer is right."""

    def __init__(self, api: Api, regime: Regime) -> None:
        self._api, self._regime = api, regime

    def reset(self, operations: Sequence[int] = (), value: int = 0, **_: Any) -> None:
        self._wanted, self._left = tuple(operations), len(operations) + self._regime.num_spare
        self._value, self._seen, self._done = value, {value}, list[int]()
        self.num_errors = 0

    def call(self, method: str, key: str, value: str) -> str:
        """Call a method.

        Args:
            method: Its name.
            key: The name of its argument.
            value: The argument.
        """
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"{ERROR}no calls left")
        try:
            return self._called(method, key, value)
        except ValueError:
            self.num_errors += 1
            raise

    def _called(self, method: str, key: str, value: str) -> str:
        noun, _, verb = str(method).partition(".")
        if noun not in NOUNS or verb not in VERBS or VERBS.index(verb) != self._api.verbs[NOUNS.index(noun)][0]:
            raise ValueError(method_error(str(method)))
        operation = NOUNS.index(noun)
        if key not in KEYS or KEYS.index(key) != self._api.keys[operation][0]:
            raise ValueError(key_error(str(method), str(key)))
        if value not in VALUES or VALUES.index(value) not in self._seen:
            raise ValueError(f"{ERROR}no value {value}")
        self._value = self._api.results[operation][VALUES.index(value)]
        self._seen.add(self._value)
        self._done.append(operation)
        return f"ok {VALUES[self._value]}"

    def _solves(self, answer: str) -> bool:
        """Return whether the episode is solved by this answer."""
        return tuple(self._done) == self._wanted and answer.strip() == VALUES[self._value]


def answer_is_right(completions: Sequence[Any], environments: Sequence[StaleApi], **_: Any) -> list[float]:
    """Reward an episode whose last message is the right answer."""
    return [
        float(not talk[-1].get("tool_calls") and talk[-1]["role"] == "assistant"
              and environment._solves(_answer(talk[-1]["content"])))
        for talk, environment in zip(completions, environments, strict=True)
    ]  # fmt: skip


def _answer(text: str) -> str:
    return text.rpartition("</think>")[2]


def hint_of(api: Api, *, control: random.Random | None = None) -> Any:
    """Return the writer of this API's hints; with `control`, of hints of the same shape that name random words."""

    def write(context: SiteContext) -> Hint | None:
        call = context.call
        noun, _, verb = str(call.arguments.get("method", "")).partition(".") if call else ("", "", "")
        if call is None or noun not in NOUNS or "no value" in context.site.message or "left" in context.site.message:
            return None
        operation = NOUNS.index(noun)
        true_verb, true_key = api.verbs[operation][0], api.keys[operation][0]
        if control is not None:
            right = true_verb == (VERBS.index(verb) if verb in VERBS else -1)
            true_verb = true_verb if right else control.randrange(len(VERBS))
            true_key = control.randrange(len(KEYS))
        if "no method" in context.site.message:
            text, rule = method_hint(operation, true_verb), "method"
        else:
            text, rule = key_hint(operation, true_verb, true_key), "key"
        name = "control" if control is not None else "did_you_mean"
        return Hint(text, name, rule, 1, kind=context.site.kind, call_id=context.site.call_id)

    return write
