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
from demo_progress import Board, OrderProgress, OrderWatch, is_live, show_table
from rich.console import Console
from rich.table import Table
from rich.text import Text

from iii_runtime.engine.http_entry import HttpCall
from iii_runtime.hosts.events import parse_event

PLAIN_WIDTH = 160
SETTLE_SECONDS = 40
LETTER_SECONDS = 10
CATALOGUE = {"tea": {"name": "Tea, 100 g", "price": 450}, "mug": {"name": "Mug", "price": 1200}}
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
            await self.host.cli("state", "set", "catalogue", sku, json.dumps(product))
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
        self._title("How they ended")
        await self._check_orders()
        self._title("What is on the dead-letter queues, and why")
        found = await self._letters(len(letters))
        self._show_letters(found)
        self.differences += letter_differences(letters, found)

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
        await self.host.cli("state", "set", "catalogue", sku, json.dumps(product))
        watch.sent(order_id)
        self._print((await self.host.cli("dlq", "redrive", "order-validate", "--all")).strip())
        with board:
            await watch.settled([order_id], SETTLE_SECONDS)
        order = await self._order(order_id)
        self.differences += order_differences(f"{UNKNOWN_PRODUCT}, redriven", AFTER_REDRIVE, order)
        left = await self._letters(0, "order-validate")
        self.differences += [f"order-validate still has the dead letter {letter['id']}" for letter in left]

    async def _check_orders(self) -> None:
        table = _table("order", "status", "steps", "result")
        for event, expected in self._expected():
            order = await self._order(event.order_id)
            self.differences += order_differences(event.name, expected, order)
            if order is None:
                table.add_row(event.order_id, "", "", "refused, nothing is stored")
            else:
                table.add_row(event.order_id, _status(order["status"]), *_story(order))
        show_table(self.console, table)

    async def _order(self, order_id: str) -> dict[str, Any] | None:
        async with self.session.get(f"{self.host.http}/orders/{order_id}") as response:
            return None if response.status == 404 else await response.json()

    async def _letters(self, count: int, *queue: str) -> list[dict[str, Any]]:
        """List dead letters, again until there are `count`: a letter is stored just after its step has reported."""
        deadline = time.monotonic() + LETTER_SECONDS
        while True:
            letters: list[dict[str, Any]] = json.loads(await self.host.cli("dlq", "list", *queue, "--json"))
            if len(letters) == count or time.monotonic() > deadline:
                return letters

    def _show_letters(self, letters: list[dict[str, Any]]) -> None:
        table = _table("queue", "order", "function", "attempts", "cause", "error")
        for letter in letters:
            facts = (letter["function_id"], str(letter["retries"]), letter["cause"])
            error = f"{letter['error_type']}: {letter['error']}"
            table.add_row(letter["queue"], letter["payload"]["order_id"], *facts, error)
        show_table(self.console, table)

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
        console.print(Text(f"$ export III_DATA={folder}", style="bold"), soft_wrap=True)
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


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def _status(status: str) -> Text:
    return Text(status, style={"fulfilled": "green", "failed": "red"}.get(status, "yellow"))


def _story(order: dict[str, Any]) -> tuple[str, str]:
    """Return the steps of an order with their attempts beyond the first, and what came of it."""
    steps: dict[str, dict[str, Any]] = order["steps"]
    names = (name if step.get("attempt", 1) == 1 else f"{name} x{step['attempt']}" for name, step in steps.items())
    shipment = f"{steps['ship']['carrier']} {steps['ship']['tracking_number']}" if "ship" in steps else ""
    return ", ".join(names), str(steps.get(order["current_step"], {}).get("error", shipment))


def main() -> int:
    """Run the demo and say how it went; returns the exit code."""
    console = Console(highlight=False)
    if not is_live(console):
        console = Console(highlight=False, width=PLAIN_WIDTH, no_color=True, force_terminal=False)
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
