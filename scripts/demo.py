"""The order pipeline at work: `make demo`.

Starts a host, sends it the orders of `events/http/`, shows their progress live, explains what ended on a dead-letter
queue, mends the cause and redrives. Exit code 0 if every order ended as expected, else 1.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from demo_expected import (
    AFTER_REDRIVE,
    EXPECTED,
    UNKNOWN_PRODUCT,
    Expected,
    answer_differences,
    letter_differences,
    order_differences,
)
from demo_host import ROOT, DemoError, DemoHost, running_host
from demo_progress import Board, OrderProgress, OrderWatch, is_live
from rich.console import Console
from rich.text import Text

from iii_runtime.cli.table import layout
from iii_runtime.engine.http_entry import HttpCall
from iii_runtime.hosts.events import parse_event

SETTLE_SECONDS = 40
LETTER_SECONDS = 10
CATALOGUE = {"tea": {"name": "Tea, 100 g", "price": 450}, "mug": {"name": "Mug", "price": 1200}}
STATUS_STYLES = {"fulfilled": "green", "failed": "red", "refused": "red"}
MISSING = ("kettle", {"name": "Kettle", "price": 3950})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event file of `events/http/`: its name, the id its order has or would have, the request in it."""

    name: str
    order_id: str
    call: HttpCall


@dataclass(slots=True)
class Demo:
    """One run. `differences` collects whatever is not as expected."""

    host: DemoHost
    console: Console
    session: aiohttp.ClientSession
    events: list[Event]
    differences: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Do everything there is to see."""
        self._title("The catalogue knows two products")
        for sku, product in CATALOGUE.items():
            await self.host.run_quietly("state", "set", "catalogue", sku, json.dumps(product))
        async with self.session.ws_connect(self.host.stream) as socket:
            board = Board(self.console)
            watch = await OrderWatch.joined(socket, board, [event.order_id for event in self.events])
            try:
                await self._orders(board, watch)
                await self._redrive(board, watch)
            finally:
                await watch.close()

    async def _orders(self, board: Board, watch: OrderWatch) -> None:
        self._title(f"{len(self.events)} orders are sent: POST {self.host.http}/orders")
        self._print(f"progress: {self.host.stream}, as `iii-runtime stream watch order-progress ord-ok` shows it")
        with board:
            accepted = [event.order_id for event in self.events if await self._send(event, board, watch)]
            await watch.settled(accepted, SETTLE_SECONDS)
        letters = {event.order_id: want.letter for event, want in self._expected() if want.letter is not None}
        self._title(f"How they ended: GET {self.host.http}/orders/ORDER")
        await self._check_orders()
        self._title("What is on the dead-letter queues, and why")
        self.differences += letter_differences(letters, await self._letters(len(letters)))
        await self.host.show("dlq", "list")

    async def _send(self, event: Event, board: Board, watch: OrderWatch) -> bool:
        watch.sent(event.order_id)
        call = event.call
        headers = {name: value for name, value in call.named.items() if name not in ("host", "content-length")}
        async with self.session.request(
            call.method, self.host.http + call.path, headers=headers, data=call.body
        ) as response:
            status, body = response.status, await response.json()
        self.differences += answer_differences(event.name, EXPECTED[event.name], status, body)
        if status == 202:
            return True
        error = body["error"]
        order: OrderProgress = board.orders[event.order_id]
        order.step, order.status, order.ended = "create", "refused", time.monotonic()
        order.note = f"{status} {error['code']}: {error['message']}"
        board.changed(order)
        return False

    async def _redrive(self, board: Board, watch: OrderWatch) -> None:
        sku, product = MISSING
        order_id = next(event.order_id for event in self.events if event.name == UNKNOWN_PRODUCT)
        board.orders = {order_id: board.orders[order_id]}
        self._title("The missing product is added, and its order redriven")
        await self.host.run_quietly("state", "set", "catalogue", sku, json.dumps(product))
        watch.sent(order_id)
        await self.host.show("dlq", "redrive", "order-validate", "--all")
        with board:
            await watch.settled([order_id], SETTLE_SECONDS)
        order = await self._order(order_id)
        self.differences += order_differences(f"{UNKNOWN_PRODUCT}, redriven", AFTER_REDRIVE, order)
        await self.host.show("dlq", "list", "order-validate")
        left = await self.host.ask("dlq", "list", "order-validate")
        self.differences += [f"order-validate still has the dead letter {letter['id']}" for letter in left]

    async def _check_orders(self) -> None:
        rows: list[tuple[str, str, str]] = []
        for event, expected in self._expected():
            order = await self._order(event.order_id)
            self.differences += order_differences(event.name, expected, order)
            if order is None:
                rows.append((event.order_id, "refused", "nothing is stored"))
            else:
                rows.append((event.order_id, order["status"], _story(order)))
        width = self.console.width if self.console.is_terminal else None
        for line in layout(("order", "status", "steps, and what came of them"), rows, width=width, has_text=True):
            text = Text(line)
            for status, style in STATUS_STYLES.items():
                text.highlight_regex(rf"(?<=  ){status}\b", style)
            self.console.print(text, soft_wrap=True)

    async def _order(self, order_id: str) -> dict[str, Any] | None:
        async with self.session.get(f"{self.host.http}/orders/{order_id}") as response:
            return None if response.status == 404 else await response.json()

    async def _letters(self, count: int) -> list[dict[str, Any]]:
        """Return the dead letters once there are `count`: a letter is stored just after its step has reported."""
        deadline = time.monotonic() + LETTER_SECONDS
        while True:
            letters: list[dict[str, Any]] = await self.host.ask("dlq", "list")
            if len(letters) == count or time.monotonic() > deadline:
                return letters

    def _expected(self) -> list[tuple[Event, Expected]]:
        return [(event, EXPECTED[event.name]) for event in self.events]

    def _title(self, text: str) -> None:
        self.console.print()
        self.console.print(Text(text, style="bold cyan"), soft_wrap=True)

    def _print(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)


async def run_demo(console: Console) -> list[str]:
    """Run the demo on a fresh data directory; returns what differs from what is expected."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101 - inside a coroutine there is one
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    with tempfile.TemporaryDirectory(prefix="iii-demo-") as folder:
        command = Text(f"$ export III_DATA={folder}", style="bold")
        console.print(command.append("  # temporary: removed at the end", style="dim"), soft_wrap=True)
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            async with running_host(Path(folder), console, session) as host:
                demo = Demo(host, console, session, read_events())
                await demo.run()
            return demo.differences


def read_events() -> list[Event]:
    """Read the API Gateway events of `events/http/`, in the order of the expectations.

    Raises:
        DemoError: A file without an expectation, or the other way round.
    """
    files = {file.stem: file for file in (ROOT / "events" / "http").glob("*.json")}
    if files.keys() != EXPECTED.keys():
        raise DemoError(f"events/http has {sorted(files)}, expected {sorted(EXPECTED)}")
    return [_event(name, files[name]) for name in EXPECTED]


def _event(name: str, file: Path) -> Event:
    call = parse_event(json.loads(file.read_text()))
    if not isinstance(call, HttpCall):
        raise DemoError(f"{file} is no http event")
    return Event(name=name, order_id=name.replace("order-", "ord-", 1), call=call)


def _story(order: dict[str, Any]) -> str:
    """Return the steps of an order, with their attempts beyond the first, and what came of it."""
    steps: dict[str, dict[str, Any]] = order["steps"]
    attempts = {name: step.get("attempt", 1) for name, step in steps.items()}
    names = (name if count == 1 else f"{name} ({count} attempts)" for name, count in attempts.items())
    shipment = f"{steps['ship']['carrier']} {steps['ship']['tracking_number']}" if "ship" in steps else ""
    return f"{', '.join(names)}: {steps.get(order['current_step'], {}).get('error', shipment)}"


def main() -> int:
    """Run the demo and say how it went; returns the exit code."""
    console = Console(highlight=False)
    if not is_live(console):
        console = Console(highlight=False, no_color=True, force_terminal=False)
    started = time.monotonic()
    try:
        differences = asyncio.run(run_demo(console))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    except (DemoError, aiohttp.ClientError, TimeoutError, OSError) as error:
        print(f"the demo failed: {str(error) or type(error).__name__}", file=sys.stderr)
        return 1
    console.print()
    if differences:
        console.print(Text("Not as expected:", style="bold red"))
        for difference in differences:
            console.print(Text(f"  {difference}"), soft_wrap=True)
        return 1
    seconds = time.monotonic() - started
    console.print(Text(f"Every order ended as expected, after {seconds:.0f} s.", style="bold green"))
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
