"""Orders flow while their host is killed again and again; each reaches exactly one end and none is lost."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from iii_runtime.adapters.config_file import load_config
from iii_runtime.core.config import Config
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.hosts.embedded.session import LocalSession
from iii_runtime.hosts.host_file import HostFile

ROOT = Path(__file__).resolve().parents[2]
ORDERS = 200
KILLS = 24
UNKNOWN_EVERY = 10
FLAKY_EVERY = 7

CONFIG = """
workers:
  - name: iii-queue
    config:
      queue_configs:
        order-validate: {max_retries: 6, backoff_ms: 1}
        order-payment: {max_retries: 6, type: fifo, message_group_field: order_id, concurrency: 4, backoff_ms: 1}
        order-ship: {max_retries: 6, backoff_ms: 1}
"""


class Host:
    """The host as a process, on a data directory that outlives it."""

    def __init__(self, data: Path, config: Path) -> None:
        self.data = data
        self._command = [sys.executable, "-m", "iii_runtime.cli", "dev", "functions", "--no-reload", "--json"]
        self._command += ["--data", str(data), "--config", str(config), "--http-port", "0", "--stream-port", "0"]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )

    def lines(self) -> Iterator[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:  # noqa: UP028 - `yield from` would close the pipe with the generator
            yield line

    def kill_after(self, lines: int, pause_s: float) -> int:
        """Let the host write so many lines and go on a moment, kill it, and start it again; returns the lines seen."""
        seen = 0
        for seen, _ in enumerate(self.lines(), start=1):
            if seen == lines:
                break
        threading.Event().wait(pause_s)
        self.process.kill()
        self.process.communicate()
        self.process = self._start()
        return seen

    def drain_output(self) -> None:
        threading.Thread(target=lambda: Counter(self.lines()), daemon=True).start()

    def stop(self) -> int:
        self.process.terminate()
        self.process.communicate(timeout=30)
        return self.process.returncode


def order(number: int) -> dict[str, Any]:
    sku = "missing" if number % UNKNOWN_EVERY == 0 else "tea"
    return {
        "order_id": f"order-{number:04d}",
        "items": [{"sku": sku, "quantity": 2}],
        "total": 800,
        "fail_payment_times": 1 if number % FLAKY_EVERY == 0 else 0,
    }


def post_until_answered(data: Path, number: int, retry: threading.Event) -> int:
    """Post as a client does that wants an answer: again under the same key until there is one."""
    body = json.dumps(order(number)).encode()
    for _ in range(3000):
        host = HostFile(data).read()
        if host is not None:
            request = urllib.request.Request(f"http://{host.http}/orders", data=body, method="POST")
            request.add_header("Content-Type", "application/json")
            request.add_header("Idempotency-Key", f"key-{number}")
            try:
                with urllib.request.urlopen(request, timeout=5) as response:
                    return int(response.status)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in (409, 503):
                        return error.code
            except (OSError, urllib.error.URLError):
                pass
        retry.wait(0.02)
    return 0


def call(session: LocalSession, function_id: str, payload: dict[str, Any]) -> Any:
    return session.call(TriggerRequest(function_id=function_id, payload=payload))


def unfinished(data: Path) -> int:
    """Ask the running host how many messages wait or run in the three queues."""
    from iii_runtime.hosts.control_client import ControlClient

    rows = ControlClient(HostFile(data)).call(TriggerRequest(function_id="engine::queue::list"))
    assert isinstance(rows, list)
    return sum(row["visible"] + row["delayed"] + row["in_flight"] for row in rows if isinstance(row, dict))  # type: ignore[operator, misc]


@pytest.mark.process
@pytest.mark.timeout(240)
def test_no_order_is_lost_and_none_ends_twice_while_the_host_is_killed_24_times(tmp_path: Path) -> None:
    seed = int(os.environ.get("III_KILL_SEED") or random.randrange(10**6))
    sys.stdout.write(f"III_KILL_SEED={seed}\n")
    chance = random.Random(seed)
    data, config = tmp_path / "data", tmp_path / "iii-config.yaml"
    config.write_text(CONFIG)
    with LocalSession(data, Config(), []) as session:
        call(session, "state::set", {"scope": "catalogue", "key": "tea", "value": {"name": "Tea", "price": 400}})

    host = Host(data, config)
    retry = threading.Event()
    try:
        with ThreadPoolExecutor(4) as clients:
            answers = [clients.submit(post_until_answered, data, number, retry) for number in range(ORDERS)]
            for _ in range(KILLS):
                wanted = chance.randint(4, 60)
                pause_s = chance.choice([0, chance.random() / 20])
                assert host.kill_after(wanted, pause_s) == wanted, "the host ended by itself"
            host.drain_output()
            assert Counter(answer.result() for answer in answers) == {202: ORDERS}
        deadline = threading.Event()
        for _ in range(600):
            if unfinished(data) == 0:
                break
            deadline.wait(0.1)
        assert unfinished(data) == 0
    finally:
        code = host.stop()
    assert code == 0
    check_every_order(data, config)


def check_every_order(data: Path, config: Path) -> None:
    with LocalSession(data, load_config(config, {}), []) as session:
        orders = {value["order_id"]: value for value in call(session, "state::list", {"scope": "orders"})}
        payments = call(session, "state::list", {"scope": "payments"})
        letters = [
            letter
            for queue in ("order-validate", "order-payment", "order-ship")
            for letter in call(session, "engine::queue::dlq_messages", {"queue": queue, "limit": 1000})
        ]
    assert sorted(orders) == [f"order-{number:04d}" for number in range(ORDERS)]

    dead = Counter(letter["payload"]["order_id"] for letter in letters)
    fulfilled = {order_id for order_id, value in orders.items() if value["status"] == "fulfilled"}
    assert max(dead.values()) == 1
    assert fulfilled & set(dead) == set()
    assert fulfilled | set(dead) == set(orders)

    unknown = {f"order-{number:04d}" for number in range(0, ORDERS, UNKNOWN_EVERY)}
    assert set(dead) == unknown
    for letter in letters:
        found = (letter["queue"], letter["cause"], letter["error_type"])
        if letter["retries"] == 6:
            assert found == ("order-validate", "failed", "UnknownProductError")
        else:  # interrupted so often that its last receive came before its last attempt
            assert found == ("order-validate", "receives", "Interrupted")
            assert letter["retries"] < 6 < letter["receives"]
    transactions = [payment["transaction_id"] for payment in payments]
    assert len(set(transactions)) == len(transactions) >= len(fulfilled)
    for order_id in fulfilled:
        steps = orders[order_id]["steps"]
        assert [steps[step]["status"] for step in ("create", "validate", "charge-payment", "ship")] == ["complete"] * 4
