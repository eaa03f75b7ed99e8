"""The order pipeline of this repository, deployed on the simulator."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from iii_runtime.adapters.config_file import load_config
from iii_runtime.core.payload import Json
from iii_runtime.hosts.embedded.discovery import discover_workers
from tests.aws.gateway import HttpAnswer
from tests.aws.simulator import Simulator

ROOT = Path(__file__).resolve().parents[2]
WORKERS = discover_workers([str(ROOT / "functions")])
CONFIG = load_config(ROOT / "iii-config.yaml", {})
CATALOGUE = {"tea": {"name": "Tea", "price": 450}, "mug": {"name": "Mug", "price": 1200}}
STEPS = [
    ("create", "complete"),
    ("validate", "running"),
    ("validate", "complete"),
    ("charge-payment", "running"),
    ("charge-payment", "complete"),
    ("ship", "running"),
    ("ship", "complete"),
    ("notify", "complete"),
]
"""What an order that meets no trouble shows on its stream, in order."""


class OrderStage:
    """The pipeline in a stage, with its catalogue.

    Attributes:
        simulator: What it runs on.
        progress: What was published on the progress topic, in order.
    """

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self._progress: list[dict[str, Any]] = []
        for sku, product in CATALOGUE.items():
            self.call("state::set", scope="catalogue", key=sku, value=cast(Json, product))
        simulator.run_due()

    def call(self, function_id: str, **payload: Json) -> Any:
        """Call a function of the runtime."""
        return self.simulator.trigger(function_id, payload)

    def post(self, name: str, **headers: str) -> HttpAnswer:
        """Send one of the events in `events/http`."""
        event = json.loads((ROOT / "events" / "http" / f"{name}.json").read_text())
        sent = {**event["headers"], **headers}
        return self.simulator.http.request("POST", event["rawPath"], "", tuple(sent.items()), event["body"].encode())

    def order(self, order_id: str) -> Any:
        """Return an order as it is stored."""
        return self.call("state::get", scope="orders", key=order_id)

    def letters(self, queue: str) -> list[dict[str, Any]]:
        """Return the dead letters of a queue as they are listed."""
        return list(self.call("engine::queue::dlq_messages", queue=queue))

    def steps(self, order_id: str) -> list[tuple[str, str]]:
        """Return step and status of every event of an order so far, in order."""
        self._progress += self.simulator.cloud.take_progress()
        shown = [payload["event"]["event"]["data"] for payload in self._progress if payload["groupId"] == order_id]
        return [(data["step"], data["status"]) for data in shown]


@contextmanager
def deployed_orders() -> Iterator[OrderStage]:
    """Deploy the pipeline, from the modules it is written in."""
    modules = sorted(name for name in sys.modules if name.startswith("functions."))
    with Simulator(WORKERS, CONFIG, modules=modules) as simulator:
        yield OrderStage(simulator)
