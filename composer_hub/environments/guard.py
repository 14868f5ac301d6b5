"""Environments that hang or raise, kept from stopping a run: a factory in, a factory of guarded environments out.

Each environment lives on a thread of its own. A call that takes longer than the limit is answered with an error, and so
is every later call of that episode: the environment is *lost*, its reward is None (TRL leaves such a rollout out of its
group's baseline), and the next episode gets a fresh one. The same holds when `reset` or `get_reward` raises. A tool
that raises loses nothing: the tool loop shows the model the error. Names, signatures and docstrings stay, because TRL
makes tool schemas from them.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import queue
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

from composer_hub import exits

MAX_HUNG = 64
_LOST = re.compile(r"The environment .{1,200}? is lost: ")
_LATE = "gave no answer within"
_ASKED = ("reset", "get_reward")  # what TRL calls itself; every other public method is a tool


class EnvironmentFailed(exits.ComposerError, RuntimeError):
    """An environment without which a run cannot go on."""


class Broken(RuntimeError):
    """Raised by an environment that cannot go on; other exceptions of a tool are news for the model."""


@dataclass(frozen=True)
class EpisodeCounts:
    """What became of the episodes of one generation batch."""

    num_episodes: int = 0
    num_timeouts: int = 0
    num_lost: int = 0
    reason: str = ""  # why the first of them was lost


def count_episodes(environments: Iterable[Any] | None) -> EpisodeCounts | None:
    """Count the lost episodes among guarded environments; None where there are none."""
    guarded = [environment for environment in environments or () if isinstance(environment, Guarded)]
    if not guarded:
        return None
    reasons = [environment._lost for environment in guarded if environment._lost]
    return EpisodeCounts(len(guarded), sum(_LATE in reason for reason in reasons), len(reasons), "".join(reasons[:1]))


def is_lost(environment: Any) -> bool:
    """Tell whether an environment's episode came to nothing."""
    return isinstance(environment, Guarded) and environment._lost is not None


def score(environment: Any, ask: Callable[[Any], Any]) -> float | None:
    """Return what a function makes of an environment; one that raises or gives NaN loses the episode."""
    if is_lost(environment):
        return None
    try:
        return _number(ask(environment))
    except Exception as error:
        if not isinstance(environment, Guarded):
            raise
        environment._fail("its reward", error)
        return None


def loss_in(text: str) -> str | None:
    """Return the kind of error site that a lost environment's answer is, or None for any other answer."""
    if not _LOST.match(text):
        return None
    return "timeout" if _LATE in text else "tool_error"


def release(environments: Iterable[Any], *, timeout_s: float = 60.0) -> None:
    """Let environments tidy up, waiting for all of them together no longer than the limit."""
    threads = [thread for one in environments if isinstance(one, Guarded) for thread in one._release()]
    end = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


def guarded(factory: Callable[[], Any], name: str, *, timeout_s: float | None) -> Callable[[], Any]:
    """Wrap an environment factory; where `timeout_s` is None there is no limit, and no thread of its own."""
    guard = Guard(factory, name, timeout_s)
    kinds: list[type[Guarded]] = []

    def make() -> Guarded:
        if kinds:
            return kinds[0](guard)  # made when its first episode begins, where a failure costs only that episode
        home = Home()
        try:
            home.make(guard.factory, timeout_s)
        except Exception as error:
            raise EnvironmentFailed(f"The environment {name} could not be made: {_said(error)}.") from error
        kinds.append(_guarded_kind(type(home.inner)))
        return kinds[0](guard, home)

    return make


@dataclass
class Guard:
    """What all environments of a run share."""

    factory: Callable[[], Any]
    name: str
    timeout_s: float | None
    hung: list[threading.Thread] = field(default_factory=list)

    def check(self) -> None:
        """End the run when so many calls of earlier episodes still hang that the machine must be suffering."""
        self.hung = [thread for thread in self.hung if thread.is_alive()]
        if len(self.hung) >= MAX_HUNG:
            raise EnvironmentFailed(
                f"{len(self.hung)} calls of the environment {self.name} still hang: give its tools limits of their "
                "own, or raise --env_timeout_s, and go on with --resume true."
            )


class _Late(Exception):
    """A call that did not end in time."""


class Home:
    """The threads of one environment: what is bound to a thread or to a loop always meets the same one."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self.inner: Any = None
        self.hangs = False
        self.threads: list[threading.Thread] = []
        self.loop: asyncio.AbstractEventLoop | None = None
        self.is_working = False

    def call(self, do: Callable[[], Any], timeout_s: float | None) -> Any:
        """Run a function on the environment's thread and wait for it, but not longer than the limit."""
        if timeout_s is None:
            return do()  # here: some environments set signals, which only the main thread may
        if not self.is_working:
            self.is_working = True
            self._start(self._work, "environment")
        future: Future[Any] = Future()
        self.calls.put((future, do))
        if not wait([future], timeout_s).done:
            raise _Late(f"{_LATE} {timeout_s:g} s")
        try:
            return future.result()
        finally:
            del future  # an exception that holds its own future would keep the environment alive

    def make(self, factory: Callable[[], Any], timeout_s: float | None) -> None:
        self.inner = self.call(factory, timeout_s)

    def call_async(self, make: Callable[[], Any], timeout_s: float | None) -> Any:
        """Run a coroutine on the environment's loop and wait for it here."""
        future = asyncio.run_coroutine_threadsafe(_awaited(make), self.running_loop())
        if not wait([future], timeout_s).done:
            future.cancel()
            raise _Late(f"{_LATE} {timeout_s:g} s")
        try:
            return future.result()
        finally:
            del future  # an exception that holds its own future would keep the environment alive

    async def finish(self, make: Callable[[], Any], timeout_s: float | None) -> Any:
        """Run a coroutine on the environment's loop; one that blocks the loop or is not to be cancelled is left."""
        future = asyncio.run_coroutine_threadsafe(_awaited(make), self.running_loop())
        done, _ = await asyncio.wait({asyncio.wrap_future(future)}, timeout=timeout_s)
        if not done:
            future.cancel()
            raise _Late(f"{_LATE} {timeout_s:g} s")
        try:
            return future.result()
        finally:
            del future  # an exception that holds its own future would keep the environment alive

    def running_loop(self) -> asyncio.AbstractEventLoop:
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            self._start(self.loop.run_forever, "environment-loop")
        return self.loop

    def close(self) -> None:
        """Let the threads end once what they do now has ended, and the environment with them."""
        if self.is_working:
            # Dropped on its own thread: environments tidy up when they are dropped, and that may take long, too.
            self.calls.put((Future(), self._forget))
            self.calls.put(None)
        else:
            self._forget()
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)

    def _start(self, work: Callable[[], Any], name: str) -> None:
        self.threads.append(threading.Thread(target=work, name=name, daemon=True))
        self.threads[-1].start()

    def _forget(self) -> None:
        self.inner = None

    def _work(self) -> None:
        while (item := self.calls.get()) is not None:
            future, do = item
            try:
                future.set_result(do())
            except Exception as error:
                future.set_exception(error)
            except BaseException as error:  # a tool that calls sys.exit ends itself, not the run
                future.set_exception(RuntimeError(_said(error)))
            del item, future, do


async def _awaited(make: Callable[[], Any]) -> Any:
    try:
        return await make()
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(_said(error)) from error


class Guarded:
    """Stands for an environment; its own attributes are private, because public methods are tools."""

    def __init__(self, guard: Guard, home: Home | None = None) -> None:
        self._guard, self._home = guard, home
        self._lost: str | None = None

    def __getattr__(self, name: str) -> Any:
        # Only what is not found otherwise comes here: what reward functions read of the environment.
        home = self.__dict__.get("_home")
        if name.startswith("__") or home is None:
            raise AttributeError(name)
        if self._lost:
            # What it held is still there to be read, but nothing of it may run: that could hang again.
            held = getattr(home.inner, "__dict__", {})
            if name not in held:
                raise AttributeError(f"{name}: {self._lost}")
            return held[name]
        return self._ask(f"reading {name}", lambda: getattr(home.inner, name))

    def __del__(self) -> None:
        self._release()

    def _release(self) -> list[threading.Thread]:
        home, self._home = self.__dict__.get("_home"), None
        if home is None:
            return []
        home.close()
        return [] if home.hangs else home.threads

    def _ask(self, what: str, do: Callable[[], Any]) -> Any:
        """Run one call, or say that the environment is lost."""
        return self._answered(what, lambda home: home.call(do, self._guard.timeout_s))

    def _answered(self, what: str, ask: Callable[[Home], Any]) -> Any:
        try:
            return ask(self._own_home())
        except (_Late, Broken) as error:
            raise self._lose(f"{what} {_ends(error)}", hangs=isinstance(error, _Late)) from error

    async def _ask_async(self, what: str, make: Callable[[], Any]) -> Any:
        try:
            return await self._own_home().finish(make, self._guard.timeout_s)
        except (_Late, Broken) as error:
            raise self._lose(f"{what} {_ends(error)}", hangs=isinstance(error, _Late)) from error

    def _own_home(self) -> Home:
        if self._lost or self._home is None:
            raise RuntimeError(self._lost or f"The environment {self._guard.name} was never reset.")
        return self._home

    def _begin(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Begin an episode; one that cannot begin is lost, and the prompt stays as it is."""
        self._guard.check()
        limit = self._guard.timeout_s
        if self._lost:
            if self._home is not None and self._home.hangs:
                self._guard.hung += self._home.threads  # they can only be left alone, and end with the process
            self._release()
            self._lost = None
        try:
            if self._home is None:
                self._home = Home()
                self._answered("making it", lambda home: home.make(self._guard.factory, limit))
            reset = self._home.inner.reset
            # TRL does not await it; here it may be a coroutine.
            if inspect.iscoroutinefunction(reset):
                seen = self._answered("reset", lambda home: home.call_async(lambda: reset(*args, **options), limit))
            else:
                seen = self._ask("reset", lambda: reset(*args, **options))
            if not isinstance(seen, (str, list, type(None))):
                raise TypeError(f"it returned {type(seen).__name__}; text, content blocks or nothing is needed")
        except Exception as error:
            self._fail("reset", error)
            return None
        return seen

    def _score(self) -> float | None:
        try:
            return _number(self._ask("get_reward", self._own_home().inner.get_reward))
        except Exception as error:
            self._fail("get_reward", error)  # nothing new where it was lost before
            return None

    async def _score_async(self) -> float | None:
        try:
            ask = self._own_home().inner.get_reward
            return _number(await self._ask_async("get_reward", ask))
        except Exception as error:
            self._fail("get_reward", error)  # nothing new where it was lost before
            return None

    def _fail(self, what: str, error: Exception) -> None:
        self._lose(f"{what} failed ({_said(error)})")

    def _lose(self, why: str, *, hangs: bool = False) -> RuntimeError:
        if self._lost is None:
            self._lost = f"The environment {self._guard.name} is lost: {why}."
            if hangs and self._home is not None:
                self._home.hangs = True
            warnings.warn(self._lost, stacklevel=2)
        return RuntimeError(self._lost)


def _guarded_kind(inner: type) -> type[Guarded]:
    """Make the class that stands for an environment's class, with the same name and the same public methods."""
    members: dict[str, Any] = {"__doc__": inner.__doc__, "__module__": inner.__module__}
    for name, method in inspect.getmembers(inner, inspect.isfunction):
        if not name.startswith("_"):
            members[name] = _guarded_method(name, method, isinstance(inspect.getattr_static(inner, name), staticmethod))
    return type(inner.__name__, (Guarded,), members)


def _guarded_method(name: str, method: Callable[..., Any], is_static: bool) -> Callable[..., Any]:
    is_async = inspect.iscoroutinefunction(method)
    stand_in: Callable[..., Any]
    if name == "reset":

        def stand_in(self: Guarded, *args: Any, **options: Any) -> Any:
            return self._begin(args, options)

    elif name == "get_reward" and is_async:

        async def stand_in(self: Guarded) -> Any:
            return await self._score_async()

    elif name == "get_reward":

        def stand_in(self: Guarded) -> Any:
            return self._score()

    elif is_async:

        async def stand_in(self: Guarded, *args: Any, **options: Any) -> Any:
            return await self._ask_async(name, lambda: getattr(self._own_home().inner, name)(*args, **options))

    else:

        def stand_in(self: Guarded, *args: Any, **options: Any) -> Any:
            return self._ask(name, lambda: getattr(self._own_home().inner, name)(*args, **options))

    stand_in = functools.wraps(method)(stand_in)
    if is_static:  # it is bound now, so its signature needs a first parameter to lose
        signature = inspect.signature(method)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        stand_in.__signature__ = signature.replace(parameters=[own, *signature.parameters.values()])  # type: ignore[attr-defined]
    return stand_in


def _number(reward: Any) -> float | None:
    if reward is None:
        return None
    number = float(reward)
    if not math.isfinite(number):
        raise ValueError(f"it returned {number}; return None where there is no reward")
    return number


def _ends(error: Exception) -> str:
    return str(error) if isinstance(error, _Late) else f"failed: {error}"


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
