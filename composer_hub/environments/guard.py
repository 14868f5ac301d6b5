"""Guarded environments, whose hanging or failing calls cannot stop a run: a factory in, a guarded factory out.

Each environment lives on its own thread. If a call exceeds the limit, or `reset` or `get_reward` raises, the
environment is *lost*: this call and all later calls of the episode fail, its reward is None (so TRL leaves the rollout
out of its group's baseline), and the next episode gets a new environment. A tool that raises loses nothing; the model
reads the error. Names, signatures and docstrings are kept, because TRL makes tool schemas from them.
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
_IS_LATE = re.compile(rf"(?:making it|(?:reading )?\w+) {_LATE} ")


class EnvironmentFailed(exits.ComposerError, RuntimeError):
    """A failure of the environment that ends the run."""


class Broken(RuntimeError):
    """Raised by an environment that is unusable; the model reads all other exceptions of a tool."""


@dataclass(frozen=True)
class EpisodeCounts:
    """Episodes of one generation batch, and those that were lost."""

    num_episodes: int = 0
    num_timeouts: int = 0
    num_lost: int = 0
    reason: str = ""  # why the first of them was lost


def count_episodes(environments: Iterable[Any] | None) -> EpisodeCounts | None:
    """Count the lost episodes of guarded environments; None without any guarded environment."""
    guarded = [environment for environment in environments or () if isinstance(environment, Guarded)]
    if not guarded:
        return None
    lost = [environment for environment in guarded if environment._lost]
    num_timeouts = sum(one._host is not None and one._host.hangs for one in lost)
    return EpisodeCounts(len(guarded), num_timeouts, len(lost), (lost[0]._lost or "") if lost else "")


class OwnEnvironment:
    """Base of this product's environments; private names of a user's class are its own."""

    def _keep(self, results: Iterable[tuple[str, str]]) -> None:
        """Take back the last calls if their results, as tool and text, are not in the transcript any more."""

    def _notes(self) -> dict[str, float]:
        """Return the episode's numbers for the run's log; a watchdog can stop a run because of them."""
        return {}

    def _facts(self) -> dict[str, Any]:
        """Return the parts of an episode that a published rollout keeps."""
        return {}


def own_environment(environment: Any) -> OwnEnvironment | None:
    """Return the environment behind the guard if it is one of this product's and has not lost its episode."""
    host = environment._host if isinstance(environment, Guarded) else None
    inner = host.inner if host else environment
    return inner if isinstance(inner, OwnEnvironment) and not is_lost(environment) else None


def notes_of(environments: Iterable[Any] | None) -> dict[str, list[float]]:
    """Return the numbers that environments note about their episodes, by metric; lost ones have none."""
    found: dict[str, list[float]] = {}
    for one in environments or ():
        own = own_environment(one)
        try:
            noted = own._notes() if own else {}
        except Exception:  # noqa: BLE001 - an episode that cannot be judged; its reward has said why
            continue
        for name, value in noted.items():
            found.setdefault(name, []).append(value)
    return found


def is_lost(environment: Any) -> bool:
    """Return True if the environment has lost its current episode."""
    return isinstance(environment, Guarded) and environment._lost is not None


def score(environment: Any, ask: Callable[[Any], Any]) -> float | None:
    """Return the reward that a function gives an environment; if it raises or returns NaN, the episode is lost."""
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
    """Return the kind of error if a tool's answer comes from a lost environment, and None otherwise."""
    if not (lost := _LOST.match(text)):
        return None
    return "timeout" if _IS_LATE.match(text, lost.end()) else "tool_error"


def release(environments: Iterable[Any], *, timeout_s: float = 60.0) -> None:
    """Let environments clean up, and wait for all of them together at most `timeout_s`."""
    threads = [thread for one in environments if isinstance(one, Guarded) for thread in one._release()]
    end = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


def guarded(factory: Callable[[], Any], name: str, *, timeout_s: float | None) -> Callable[[], Any]:
    """Wrap an environment factory; without `timeout_s` calls have no limit and run on the caller's thread."""
    guard = EnvironmentGuard(factory, name, timeout_s)
    classes: list[type[Guarded]] = []

    def make() -> Guarded:
        if classes:
            return classes[0](guard)  # the host is made with the first episode, so a failure costs only that episode
        host = EnvironmentHost()
        try:
            host.make(guard.factory, timeout_s)
        except Exception as error:
            raise EnvironmentFailed(f"The environment {name} could not be made: {_show(error)}.") from error
        classes.append(_guarded_class(type(host.inner)))
        return classes[0](guard, host)

    return make


@dataclass
class EnvironmentGuard:
    """State that all environments of a run share."""

    factory: Callable[[], Any]
    name: str
    timeout_s: float | None
    hung: list[threading.Thread] = field(default_factory=list)

    def check(self) -> None:
        """Stop the run once too many calls of earlier episodes are still hanging."""
        self.hung = [thread for thread in self.hung if thread.is_alive()]
        if len(self.hung) >= MAX_HUNG:
            raise EnvironmentFailed(
                f"{len(self.hung)} calls of the environment {self.name} still hang. Give its tools their own "
                "limits or raise --env_timeout_s, and continue with --resume true."
            )


class _Overdue(Exception):
    """A call that exceeded the limit."""


class EnvironmentHost:
    """The thread and the event loop of one environment, which stay the same for all of its calls."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self.inner: Any = None
        self.hangs = False
        self.threads: list[threading.Thread] = []
        self.loop: asyncio.AbstractEventLoop | None = None
        self.is_working = False

    def call(self, do: Callable[[], Any], timeout_s: float | None) -> Any:
        """Run a function on the environment's thread and wait for it up to the limit."""
        if timeout_s is None:
            return do()  # on this thread: some environments set signals, which only the main thread may do
        if not self.is_working:
            self.is_working = True
            self._start(self._work, "environment")
        future: Future[Any] = Future()
        self.calls.put((future, do))
        if not wait([future], timeout_s).done:
            raise _Overdue(f"{_LATE} {timeout_s:g} s")
        try:
            return future.result()
        finally:
            del future  # an exception that holds its own future would keep the environment alive

    def make(self, factory: Callable[[], Any], timeout_s: float | None) -> None:
        self.inner = self.call(factory, timeout_s)

    def call_async(self, make: Callable[[], Any], timeout_s: float | None) -> Any:
        """Run a coroutine on the environment's loop and block until it ends."""
        future = asyncio.run_coroutine_threadsafe(_awaited(make), self.running_loop())
        if not wait([future], timeout_s).done:
            future.cancel()
            raise _Overdue(f"{_LATE} {timeout_s:g} s")
        try:
            return future.result()
        finally:
            del future  # an exception that holds its own future would keep the environment alive

    async def finish(self, make: Callable[[], Any], timeout_s: float | None) -> Any:
        """Run a coroutine on the environment's loop; one that cannot be canceled is abandoned."""
        future = asyncio.run_coroutine_threadsafe(_awaited(make), self.running_loop())
        done, _ = await asyncio.wait({asyncio.wrap_future(future)}, timeout=timeout_s)
        if not done:
            future.cancel()
            raise _Overdue(f"{_LATE} {timeout_s:g} s")
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
        """Let the threads end after their current calls, and drop the environment."""
        if self.is_working:
            # Dropping it may start a long cleanup, so it happens on the environment's own thread.
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
            except Exception as error:  # noqa: BLE001 - the caller raises it
                future.set_exception(error)
            except BaseException as error:  # noqa: BLE001 - a tool that calls sys.exit must not end the run
                future.set_exception(RuntimeError(_show(error)))
            del item, future, do


async def _awaited(make: Callable[[], Any]) -> Any:
    try:
        return await make()
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(_show(error)) from error


class Guarded:
    """Base of guarded environments; its attributes are private, because public methods are tools."""

    def __init__(self, guard: EnvironmentGuard, host: EnvironmentHost | None = None) -> None:
        self._guard, self._host = guard, host
        self._lost: str | None = None

    def __getattr__(self, name: str) -> Any:
        # Only attributes of the inner environment come here, which reward functions read.
        host = self.__dict__.get("_host")
        if name.startswith("__") or host is None:
            raise AttributeError(name)
        if self._lost:
            # Stored attributes may still be read, but no property may run: it could hang again.
            held = getattr(host.inner, "__dict__", {})
            if name not in held:
                raise AttributeError(f"{name}: {self._lost}")
            return held[name]
        return self._ask(f"reading {name}", lambda: getattr(host.inner, name))

    def __del__(self) -> None:
        self._release()

    def _release(self) -> list[threading.Thread]:
        host, self._host = self.__dict__.get("_host"), None
        if host is None:
            return []
        host.close()
        return [] if host.hangs else host.threads

    def _ask(self, action: str, do: Callable[[], Any]) -> Any:
        """Run one call; raise if the environment is lost."""
        return self._answered(action, lambda host: host.call(do, self._guard.timeout_s))

    def _answered(self, action: str, ask: Callable[[EnvironmentHost], Any]) -> Any:
        try:
            return ask(self._own_host())
        except (_Overdue, Broken) as error:
            raise self._lose(f"{action} {_ends(error)}", hangs=isinstance(error, _Overdue)) from error

    async def _ask_async(self, action: str, make: Callable[[], Any]) -> Any:
        try:
            return await self._own_host().finish(make, self._guard.timeout_s)
        except (_Overdue, Broken) as error:
            raise self._lose(f"{action} {_ends(error)}", hangs=isinstance(error, _Overdue)) from error

    def _own_host(self) -> EnvironmentHost:
        if self._lost or self._host is None:
            raise RuntimeError(self._lost or f"The environment {self._guard.name} was never reset.")
        return self._host

    def _begin(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Begin an episode; if that fails it is lost, and the prompt does not change."""
        self._guard.check()
        limit = self._guard.timeout_s
        if self._lost:
            if self._host is not None and self._host.hangs:
                self._guard.hung += self._host.threads  # they cannot be stopped and end with the process
            self._release()
            self._lost = None
        try:
            if self._host is None:
                self._host = EnvironmentHost()
                self._answered("making it", lambda host: host.make(self._guard.factory, limit))
            reset = self._host.inner.reset
            # TRL does not await `reset`, but here it may be a coroutine.
            if inspect.iscoroutinefunction(reset):
                seen = self._answered("reset", lambda host: host.call_async(lambda: reset(*args, **options), limit))
            else:
                seen = self._ask("reset", lambda: reset(*args, **options))
            if not isinstance(seen, (str, list, type(None))):
                raise TypeError(f"it returned {type(seen).__name__} instead of text, content blocks or None")
        except Exception as error:  # noqa: BLE001 - whatever it raises, the episode is lost
            self._fail("reset", error)
            return None
        return seen

    def _score(self) -> float | None:
        try:
            return _number(self._ask("get_reward", self._own_host().inner.get_reward))
        except Exception as error:  # noqa: BLE001 - no effect if the episode was lost before
            self._fail("get_reward", error)
            return None

    async def _score_async(self) -> float | None:
        try:
            ask = self._own_host().inner.get_reward
            return _number(await self._ask_async("get_reward", ask))
        except Exception as error:  # noqa: BLE001 - no effect if the episode was lost before
            self._fail("get_reward", error)
            return None

    def _fail(self, action: str, error: Exception) -> None:
        self._lose(f"{action} failed ({_show(error)})")

    def _lose(self, why: str, *, hangs: bool = False) -> RuntimeError:
        if self._lost is None:
            self._lost = f"The environment {self._guard.name} is lost: {why}."
            if hangs and self._host is not None:
                self._host.hangs = True
            warnings.warn(self._lost, stacklevel=2)
        return RuntimeError(self._lost)


def _guarded_class(inner: type) -> type[Guarded]:
    """Make the guarded counterpart of an environment's class, with the same name and public methods."""
    members: dict[str, Any] = {"__doc__": inner.__doc__, "__module__": inner.__module__}
    for name, method in inspect.getmembers(inner, inspect.isfunction):
        if not name.startswith("_"):
            # `failed` is asked by the trainer; TRL would offer every public method to the model.
            is_static = isinstance(inspect.getattr_static(inner, name), staticmethod)
            members["_failed" if name == "failed" else name] = _guarded_method(name, method, is_static)
    return type(inner.__name__, (Guarded,), members)


def _guarded_method(name: str, method: Callable[..., Any], is_static: bool) -> Callable[..., Any]:
    is_async = inspect.iscoroutinefunction(method)
    wrapper: Callable[..., Any]
    if name == "reset":

        def wrapper(self: Guarded, *args: Any, **options: Any) -> Any:
            return self._begin(args, options)

    elif name == "get_reward" and is_async:

        async def wrapper(self: Guarded) -> Any:
            return await self._score_async()

    elif name == "get_reward":

        def wrapper(self: Guarded) -> Any:
            return self._score()

    elif is_async:

        async def wrapper(self: Guarded, *args: Any, **options: Any) -> Any:
            return await self._ask_async(name, lambda: getattr(self._own_host().inner, name)(*args, **options))

    else:

        def wrapper(self: Guarded, *args: Any, **options: Any) -> Any:
            return self._ask(name, lambda: getattr(self._own_host().inner, name)(*args, **options))

    wrapper = functools.wraps(method)(wrapper)
    if is_static:  # the wrapper is bound, so its signature needs a first parameter
        signature = inspect.signature(method)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        wrapper.__signature__ = signature.replace(parameters=[own, *signature.parameters.values()])  # type: ignore[attr-defined]
    return wrapper


def _number(reward: Any) -> float | None:
    if reward is None:
        return None
    number = float(reward)
    if not math.isfinite(number):
        raise ValueError(f"it returned {number}; return None if there is no reward")
    return number


def _ends(error: Exception) -> str:
    return str(error) if isinstance(error, _Overdue) else f"failed: {error}"


def _show(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
