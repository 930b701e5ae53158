"""The mode in force: takes it up from the stream of orders at start, hears new orders, and obeys what is stored.

An order to stand still is obeyed the moment it is heard. One that lets weights move is obeyed when the stream has it,
and as the newest: what nobody could read later lets nothing move (docs/adr/0003-mode-from-the-orders.md).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence

from runtime.errors import BusError
from runtime.lifecycle import Context
from runtime.messenger import Dated
from runtime.streams import ORDERS
from schemas.messages import Command, Mode
from services.guard.core.mode_order import (
    STANDS_STILL,
    Stored,
    in_force,
    is_again,
    key_of,
    refusal,
    said_again,
    sets_mode,
)

_RECENT, _ALL = 200, 10_000
_AGAIN_AFTER = 150
"""Other orders after which the one that holds is said again, so that it stays among the recent ones."""

_REMEMBERED = 1000
_TRIES = 30
"""How often what holds is given back to a stream that does not take it: for a minute after the bus was lost."""

_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""How long the server may take to store what it has already handed on."""


class ModeOrders:
    """The mode of this guard. `on_change` is called after each change."""

    def __init__(self, context: Context, max_skew_seconds: float, on_change: Callable[[], None]) -> None:
        self._context = context
        self._max_skew_seconds = max_skew_seconds
        self._on_change = on_change
        self._mode: Mode = context.shared.mode
        self._known: OrderedDict[str, None] = OrderedDict()
        self._stop: Command | None = None  # the newest order to stand still that was heard and not yet found stored
        self._held: Stored | None = None  # what holds, as the stream had it: said again where the stream has lost it
        self._since = 0  # other orders since the last one of a mode
        self._heard_of = context.messenger.reconnects
        self._waiting: set[asyncio.Task[None]] = set()

    @property
    def mode(self) -> Mode:
        """The mode in force."""
        return self._mode

    async def take_up(self) -> list[Command]:
        """Takes up what holds, and returns the recent orders, oldest first, for whoever wants to know more of them."""
        orders = await self._far_enough()
        self._obey_stored(orders, "mode_taken_up")
        await self._say_again_in_time(orders)
        return [dated.message for dated in orders[-_RECENT:]]

    async def hear_missed(self) -> None:
        """What was ordered while the bus was lost here is in the stream, and holds before the next verdict."""
        reconnects = self._context.messenger.reconnects
        if reconnects == self._heard_of:
            return
        try:
            self._obey_stored(await self._far_enough(), "mode_taken_up")
        except BusError as error:  # asked again with the next state; until then the actuator holds what it heard
            self._context.log.warning("orders_unknown", detail=str(error))
            return
        self._heard_of = reconnects
        self._start(self._give_back())

    async def hear(self, command: Command) -> bool:
        """One order off the wire; False if it was dropped as a duplicate."""
        if not sets_mode(command):
            await self.hear_junk()
            return True
        if is_again(command):
            return True  # what holds is not said against
        if key_of(command) in self._known:
            self._context.messenger.drop(command, "duplicate")
            return False
        if command.mode in STANDS_STILL:
            self._remember(command)
            self._since, self._stop = 0, command
            self._change_to(command, "mode_changed")
            return True
        stop = self._stop
        if not await self._obey_if_stored(command, stop):
            self._start(self._obey_once_stored(command, stop))
        return True

    async def hear_junk(self) -> None:
        """Something on the orders' subject that is none: it is stored all the same, and pushes orders back."""
        self._since += 1
        if self._since >= _AGAIN_AFTER:
            await self._say_again()

    async def stop(self) -> None:
        """Waits for nothing any more."""
        for task in list(self._waiting):
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    # ---- what is stored ----

    async def _obey_once_stored(self, command: Command, stop: Command | None) -> None:
        for pause in _PAUSES_SECONDS:
            await self._context.clock.sleep(pause)
            if await self._obey_if_stored(command, stop):
                return
        if await self._obey_if_stored(command, stop, _ALL):  # many came after it
            return
        self._context.messenger.drop(command, "not_stored")
        self._context.log.warning(
            "order_refused", mode=command.mode, by=command.by, detail=f"{ORDERS} does not have it; give it again"
        )

    async def _obey_if_stored(self, command: Command, stop: Command | None, limit: int = _RECENT) -> bool:
        """Obeys what the stream says as soon as it has this order; False while it has not. `stop` is the order to stand
        still that was the newest when this one was heard.
        """
        try:
            orders = await self._history(limit)
        except BusError:
            return False
        place = next((at for at, dated in reversed(list(enumerate(orders))) if dated.message == command), None)
        if place is None:
            return False
        before = {key_of(dated.message) for dated in orders[:place] if sets_mode(dated.message)}
        word = refusal(command, orders[place].stored_ns, before, self._max_skew_seconds)
        if word is not None:
            self._context.messenger.drop(command, word)
            skew = (orders[place].stored_ns - command.at) / 1e9
            detail = f"its time is {skew:.0f} s off the server's" if word != "duplicate" else "it was given before"
            self._context.log.warning("order_refused", mode=command.mode, by=command.by, detail=detail)
        elif self._stop is stop:
            self._stop = None  # this order came after it
        self._obey_stored(orders, "mode_changed", heard=place + 1)
        return True

    def _obey_stored(self, orders: Sequence[Dated[Command]], event: str, heard: int = _ALL) -> None:
        """Obeys what holds. The first `heard` orders need not be heard any more; those after them are on their way."""
        for dated in orders[:heard]:
            if sets_mode(dated.message) and not is_again(dated.message):
                self._remember(dated.message)
                if self._stop is not None and key_of(dated.message) == key_of(self._stop):
                    self._stop = None
        held = in_force(orders, self._max_skew_seconds)
        if held is None or (self._stop is not None and held[0].mode not in STANDS_STILL):
            return
        self._held = held
        self._since = next((age for age, dated in enumerate(reversed(orders)) if sets_mode(dated.message)), 0)
        self._change_to(held[0], event)

    async def _say_again(self) -> None:
        try:
            since, orders = self._since, await self._far_enough()
            self._obey_stored(orders, "mode_changed", heard=0)  # so many at once may have cost one that was not heard
            self._since = max(since, self._since)  # what is no order is not among those
            await self._say_again_in_time(orders)
        except BusError as error:  # with the next order
            self._context.log.warning("orders_unknown", detail=str(error))

    async def _give_back(self) -> None:
        """What holds here goes to a stream that never had it or has lost it: the server was full, or lost its store."""
        for _ in range(_TRIES):
            await self._context.clock.sleep(_PAUSES_SECONDS[-1])
            try:
                orders = await self._far_enough()
                self._obey_stored(orders, "mode_taken_up")
                if self._stop is not None:
                    await self._context.messenger.send_stored(self._stop, ORDERS)
                elif self._held is not None and in_force(orders, self._max_skew_seconds) is None:
                    await self._context.messenger.send_stored(self._said_again(self._held), ORDERS)
            except BusError:
                continue  # the streams may have to be made again first
            return
        self._context.log.warning("orders_unknown", detail=f"{ORDERS} does not take what holds: {self._mode}")

    async def _say_again_in_time(self, orders: Sequence[Dated[Command]]) -> None:
        held = in_force(orders, self._max_skew_seconds) or self._known_to_hold()
        if self._since < _AGAIN_AFTER:
            return
        if held is None or held[0].mode != self._mode:
            self._since = 0  # there is nothing to say
            return
        try:
            await self._context.messenger.send_stored(self._said_again(held), ORDERS)
        except BusError as error:
            self._context.log.warning("orders_unknown", detail=str(error))
            return
        self._since = 0

    async def _far_enough(self) -> list[Dated[Command]]:
        """The recent orders, or all that there are where no mode is among those."""
        recent = await self._history(_RECENT)
        if len(recent) < _RECENT or any(sets_mode(dated.message) for dated in recent):
            return recent
        return await self._history(_ALL)

    async def _history(self, limit: int) -> list[Dated[Command]]:
        return await self._context.messenger.dated_history(ORDERS, Command, limit)

    def _said_again(self, held: Stored) -> Command:
        return said_again(*held, self._context.clock.now_ns())

    def _known_to_hold(self) -> Stored | None:
        """What holds by our own memory: a flood may have pushed it out of the stream before it was said again."""
        if self._stop is None:
            return self._held
        return self._stop, min(self._stop.at, self._context.clock.now_ns())

    # ---- the mode ----

    def _remember(self, command: Command) -> None:
        self._known[key_of(command)] = None
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _change_to(self, order: Command, event: str) -> None:
        if order.mode is None or order.mode == self._mode:
            return
        self._context.log.info(event, old=self._mode, new=order.mode, by=order.by, reason=order.reason)
        self._mode = order.mode
        self._on_change()
