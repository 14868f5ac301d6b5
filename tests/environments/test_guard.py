"""A hanging or failing environment loses its episode and does not stop the run."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from composer_hub.environments.guard import (
    MAX_HUNG,
    EnvironmentFailed,
    OwnEnvironment,
    count_episodes,
    guarded,
    is_lost,
    loss_in,
    notes_of,
    own_environment,
    release,
)


class Shop:
    """A shop."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.sold = 0

    def reset(self, how: str = "", **_: Any) -> str | None:
        self.how = how
        if how == "reset raises":
            raise KeyError("shelf")
        if how == "reset hangs":
            time.sleep(30)
        if how == "reset quotes a server":
            raise OSError("The environment y is lost: act gave no answer within 3 s.")
        return {"reset": 1} if how == "reset returns a dict" else "Welcome."  # type: ignore[return-value]

    def sell(self, what: str, count: int = 1) -> str:
        """Sell something.

        Args:
            what: The thing.
            count: How many.
        """
        if what == "nothing":
            raise ValueError("There is nothing to sell.")
        if what == "forever":
            time.sleep(30)
        if what == "exit":
            raise SystemExit(2)
        assert threading.current_thread() is self.thread
        self.sold += count
        return f"sold {what}"

    async def order(self, what: str) -> str:
        """Order something.

        Args:
            what: The thing.
        """
        if what == "forever":
            await asyncio.sleep(30)
        if what == "stubborn":
            time.sleep(30)  # blocks its loop, so it cannot be canceled
        return f"ordered {what}"

    @staticmethod
    def price(what: str) -> str:
        """Say a price.

        Args:
            what: The thing.
        """
        return f"{what}: 3"

    def get_reward(self) -> Any:
        if self.how == "reward hangs":
            time.sleep(30)
        if self.how == "reward raises":
            raise ZeroDivisionError("division by zero")
        return {"reward is nan": float("nan"), "reward is text": "good"}.get(self.how, float(self.sold))

    @property
    def stock(self) -> int:
        return 10 - self.sold

    def _private(self) -> None:
        raise AssertionError


class AsyncShop:
    """An environment of coroutines that are bound to their first loop."""

    async def reset(self, **_: Any) -> str:
        self.loop = asyncio.get_running_loop()
        return "Welcome."

    async def sell(self, what: str) -> str:
        """Sell.

        Args:
            what: The thing.
        """
        assert asyncio.get_running_loop() is self.loop
        return what

    async def get_reward(self) -> float:
        assert asyncio.get_running_loop() is self.loop
        return 2.0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def shop(timeout_s: float | None = 0.2) -> Any:
    return guarded(Shop, "shop", timeout_s=timeout_s)()


def test_tools_keep_name_signature_and_schema() -> None:
    from transformers.utils import get_json_schema

    tools = {name for name, _ in inspect.getmembers(type(shop()), inspect.isfunction) if not name.startswith("_")}
    assert tools == {"reset", "sell", "order", "price", "get_reward"}
    assert type(shop()).__name__ == "Shop"
    for name in ("sell", "order", "price"):
        assert get_json_schema(getattr(shop(), name)) == get_json_schema(getattr(Shop(), name))
    assert inspect.iscoroutinefunction(shop().order)
    assert not inspect.iscoroutinefunction(shop().sell)


def test_a_guard_does_not_change_a_working_environment() -> None:
    one = shop()
    assert one.reset(prompt="x") == "Welcome."
    assert (one.sell("tea"), one.sell(what="tea", count=2), one.price("tea")) == ("sold tea", "sold tea", "tea: 3")
    assert asyncio.run(one.order("tea")) == "ordered tea"
    assert (one.get_reward(), one.stock, one.sold) == (3.0, 7, 3)
    with pytest.raises(ValueError, match="nothing to sell"):
        one.sell("nothing")
    with pytest.raises(RuntimeError, match="SystemExit"):
        one.sell("exit")
    assert not is_lost(one)
    assert not hasattr(one, "colour")


def test_coroutines_are_awaited_on_the_environments_own_loop() -> None:
    one = guarded(AsyncShop, "shop", timeout_s=5)()
    assert one.reset() == "Welcome."
    assert asyncio.run(one.sell("tea")) == "tea"
    assert asyncio.run(one.get_reward()) == 2.0


@pytest.mark.parametrize(("tool", "what"), [("sell", "forever"), ("order", "forever"), ("order", "stubborn")])
def test_a_hanging_tool_is_answered_and_ends_the_episode(tool: str, what: str) -> None:
    one = shop()
    one.reset()
    call = getattr(one, tool)
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match=r"environment shop is lost: \w+ gave no answer within 0.2 s") as caught:
        asyncio.run(call(what)) if tool == "order" else call(what)
    assert loss_in(str(caught.value)) == "timeout"
    with pytest.raises(RuntimeError, match="is lost"):
        one.sell("tea")
    assert one.get_reward() is None
    assert time.monotonic() - begun < 10
    assert count_episodes([one]).num_timeouts == 1
    assert one.sold == 0  # what a reward function reads is still there
    with pytest.raises(AttributeError, match="is lost"):
        _ = one.stock


@pytest.mark.parametrize(("how", "says", "late"), [
    ("reset raises", r"reset failed \(KeyError: 'shelf'\)", 0),
    ("reset hangs", "reset gave no answer", 1),
    ("reset quotes a server", r"reset failed \(OSError: The environment y is lost: act gave no answer", 0),
    ("reset returns a dict", r"reset failed \(TypeError: it returned dict", 0),
    ("reward hangs", "get_reward gave no answer", 1),
    ("reward raises", r"get_reward failed \(ZeroDivisionError: division by zero\)", 0),
    ("reward is nan", r"get_reward failed \(ValueError: it returned nan", 0),
    ("reward is text", r"get_reward failed \(ValueError: could not convert", 0),
])  # fmt: skip
def test_a_failed_episode_has_no_reward_and_the_next_one_has_a_new_environment(how: str, says: str, late: int) -> None:
    one = shop()
    with pytest.warns(UserWarning, match=f"The environment shop is lost: {says}"):
        outcome = one.reset(how=how), one.get_reward()
    assert outcome[1] is None
    assert loss_in(str(one._lost)) == ("timeout" if late else "tool_error")
    assert (count_episodes([one]).num_lost, count_episodes([one]).num_timeouts) == (1, late)
    assert one.reset() == "Welcome."
    one.sell("tea")
    assert one.get_reward() == 1.0
    assert count_episodes([one, object()]).num_lost == 0


def test_an_environment_that_cannot_be_constructed_is_named() -> None:
    with pytest.raises(EnvironmentFailed, match="environment shop could not be made: ZeroDivisionError"):
        guarded(lambda: 1 / 0, "shop", timeout_s=1)()


def test_later_environments_are_constructed_with_their_first_episode() -> None:
    made: list[int] = []

    def factory() -> Shop:
        made.append(len(made))
        if len(made) == 2:
            raise OSError("no more rooms")
        return Shop()

    make = guarded(factory, "shop", timeout_s=1)
    make()
    second = make()
    assert made == [0]
    assert second.reset() is None
    assert is_lost(second)
    assert second.reset() == "Welcome."


def test_too_many_hanging_calls_end_the_run() -> None:
    make = guarded(Shop, "shop", timeout_s=0.01)
    one = make()
    one.reset()
    waiting = threading.Event()
    one._guard.hung = [threading.Thread(target=waiting.wait, daemon=True) for _ in range(MAX_HUNG)]
    for thread in one._guard.hung:
        thread.start()
    with pytest.raises(EnvironmentFailed, match=f"{MAX_HUNG} calls of the environment shop still hang"):
        one.reset()
    waiting.set()
    for thread in one._guard.hung:
        thread.join()
    assert one.reset() == "Welcome."


@pytest.mark.parametrize("how", ["", "reward raises"])
def test_released_environments_clean_up_on_their_own_thread(how: str) -> None:
    gone: list[threading.Thread] = []

    class Tidy(Shop):
        def __del__(self) -> None:
            gone.append(threading.current_thread())

    one = guarded(Tidy, "shop", timeout_s=5)()
    one.reset(how=how)
    one.get_reward()
    thread = one.thread
    release([one])
    assert gone == [thread]
    assert not thread.is_alive()


def test_without_a_limit_calls_run_on_the_callers_thread() -> None:
    one = shop(None)
    one.reset()
    assert one.sell("tea") == "sold tea"
    assert one.thread is threading.current_thread()
    assert asyncio.run(one.order("tea")) == "ordered tea"
    one.reset(how="reward raises")
    assert one.get_reward() is None
    assert count_episodes(None) is None
    assert count_episodes([Shop()]) is None
    assert loss_in("The environment was lost: no") is None
    assert loss_in("The environment x is lost: reset failed (KeyError).") == "tool_error"


def test_notes_of_environments_leave_out_those_that_cannot_tell() -> None:
    class Noted(Shop, OwnEnvironment):
        value: float = 0.0

        def _notes(self) -> dict[str, float]:
            return {"rollout/share": 1 / self.value}

    environments = [guarded(Noted, "noted", timeout_s=5)() for _ in range(3)] + [guarded(Shop, "shop", timeout_s=5)()]
    for value, one in enumerate(environments):
        one.reset()
        if value < 3:
            one._host.inner.value = value  # 0 cannot be noted
    environments[1]._lost = "lost"
    assert notes_of(environments) == {"rollout/share": [0.5]}
    release(environments)


def test_private_names_of_a_users_class_are_its_own() -> None:
    class Diary(Shop):
        def __init__(self) -> None:
            super().__init__()
            self._notes: list[str] = []
            self._facts = self._keep = "mine"

    environments = [Diary(), guarded(Diary, "diary", timeout_s=5)(), guarded(Diary, "diary", timeout_s=None)()]
    for one in environments:
        one.reset()
    assert notes_of(environments) == {}
    assert [own_environment(one) for one in environments] == [None] * 3
    release(environments)
