"""The progress of the orders: read from the stream, shown as a live table or as one line for each change."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp
from demo_host import DemoError
from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

STREAM = "order-progress"
STYLES = {"complete": "green", "running": "cyan", "retrying": "yellow", "failed": "red", "refused": "red"}
WIDE = 110
"""Columns of a terminal from which notes stand beside what they are about."""
NOTES = ("error", "transaction_id", "tracking_number", "text")


@dataclass(slots=True)
class OrderProgress:
    """Where one order stands.

    Attributes:
        order_id: The order.
        step: Its latest step.
        attempt: Attempt of that step; 0 where steps have none.
        status: Of that step.
        note: What the step said.
        started: When the order was sent, `time.monotonic`; 0 before.
        ended: When it came to its end; None while it goes on.
    """

    order_id: str
    step: str = ""
    attempt: int = 0
    status: str = "waiting"
    note: str = ""
    started: float = 0.0
    ended: float | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since it was sent."""
        return (self.ended or time.monotonic()) - self.started if self.started else 0.0

    def take(self, update: dict[str, Any]) -> None:
        """Move on by a `step_update` event."""
        self.step, self.status = update["step"], update["status"]
        self.attempt = update.get("attempt", 0)
        self.note = next((str(update[name]) for name in NOTES if name in update), "")
        if self.status == "failed" or (self.step, self.status) == ("notify", "complete"):
            self.ended = time.monotonic()


class Board:
    """Shows the orders while it is entered: a live table on a terminal, else one line for each change.

    Changes before it is entered are shown once it is.

    Attributes:
        orders: By id, in the order in which they are shown.
    """

    def __init__(self, console: Console) -> None:
        self.orders: dict[str, OrderProgress] = {}
        self._console = console
        self._live: Live | None = None
        self._is_entered = False
        self._held: list[str] = []
        self._started: float | None = None

    def __enter__(self) -> Self:
        self._is_entered = True
        if is_live(self._console):
            self._live = Live(console=self._console, get_renderable=self._table, refresh_per_second=8)
            self._live.start(refresh=True)
        else:
            self._print_held()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_entered, self._started = False, None
        self._held.clear()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def changed(self, order: OrderProgress) -> None:
        """Show a change."""
        self._started = self._started or order.started
        if self._live is not None:
            self._live.refresh()
            return
        attempt = f"attempt {order.attempt}" if order.attempt else ""
        facts = f"{order.order_id:<20} {order.step:<15} {attempt:<10} {order.status:<9} {order.note}"
        self._held.append(f"{time.monotonic() - self._started:6.2f} s  {facts}".rstrip())
        if self._is_entered:
            self._print_held()

    def _print_held(self) -> None:
        for line in self._held:
            self._console.print(Text(line), soft_wrap=True)
        self._held.clear()

    def _table(self) -> Table:
        """Return a line for each order; what a step says stands beside it, or below where that is too narrow."""
        width = max(map(len, self.orders))
        is_wide = self._console.width >= WIDE
        table = Table.grid(
            Column(no_wrap=is_wide), *([Column(ratio=1)] if is_wide else []), padding=(0, 2), expand=True
        )
        table.add_row(Text(f"{'order':<{width}}  {'step':<14}  attempt  {'status':<8}  elapsed", style="bold"))
        for order in self.orders.values():
            line = Text(f"{order.order_id:<{width}}  {order.step:<14}  {order.attempt or '':>7}  ")
            line.append(f"{order.status:<8}", style=STYLES.get(order.status, ""))
            line.append(f"  {order.elapsed:5.1f} s")
            # Never quite empty: the lines below it would jump.
            note = Text(order.note or " ", style="dim")
            if is_wide:
                table.add_row(line, note)
            else:
                table.add_row(line)
                table.add_row(Padding(note, (0, 0, 0, 4)))
        return table


class OrderWatch:
    """Follows orders on the stream. Create it with `OrderWatch.joined`, so that no event is missed."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, board: Board) -> None:
        self._socket = socket
        self._board = board
        self._changed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def joined(cls, socket: aiohttp.ClientWebSocketResponse, board: Board, order_ids: Iterable[str]) -> Self:
        """Join the group of each order, wait for the answers, and start to follow."""
        for order_id in order_ids:
            board.orders[order_id] = OrderProgress(order_id)
            data = {"subscriptionId": order_id, "streamName": STREAM, "groupId": order_id}
            await socket.send_json({"type": "join", "data": data})
            answer = await socket.receive_json(timeout=10)
            if answer.get("event", {}).get("type") != "sync":
                raise DemoError(f"joining the stream of {order_id} was answered with {answer}")
        return cls(socket, board)

    def sent(self, order_id: str) -> None:
        """Start the time of an order, or start it again."""
        order = self._board.orders[order_id]
        order.started, order.ended = time.monotonic(), None

    async def settled(self, order_ids: Iterable[str], seconds: float) -> None:
        """Wait until every order came to its end, but not longer than `seconds`.

        Raises:
            DemoError: The connection ended.
        """
        orders = [self._board.orders[order_id] for order_id in order_ids]
        deadline = time.monotonic() + seconds
        while any(order.ended is None for order in orders) and (left := deadline - time.monotonic()) > 0:
            if self._reader.done():
                raise DemoError(f"the stream connection ended (close code {self._socket.close_code})")
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                return

    async def close(self) -> None:
        """Stop following."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                frame: dict[str, Any] = json.loads(message.data)
                event = frame.get("event", {})
                if event.get("type") == "event" and event["event"]["type"] == "step_update":
                    order = self._board.orders[frame["groupId"]]
                    order.take(event["event"]["data"])
                    self._board.changed(order)
                    self._changed.set()
        finally:
            self._changed.set()


def is_live(console: Console) -> bool:
    """Whether a table can be redrawn: a terminal, and nobody asked for plain output."""
    return console.is_terminal and not console.is_dumb_terminal and not {"NO_COLOR", "CI"} & set(os.environ)
