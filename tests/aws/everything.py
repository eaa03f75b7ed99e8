"""An app that does everything the runtime does on AWS, as it is told by what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from iii_runtime import (
    Cron,
    DurableSubscriber,
    Http,
    NonRetryableError,
    OnState,
    OnStream,
    Queue,
    Subscribe,
    Worker,
    register_worker,
    secret,
)
from iii_runtime.core.config import Config, HttpConfig, QueueConfig, StreamConfig
from iii_runtime.core.triggers import TriggerKind

LARGE = 5 * 1024 * 1024
"""Characters that no Invoke carries."""

TIMEOUT = timedelta(seconds=5)
"""Of every function: what SQS throttles comes back soon."""

CONFIG = Config(
    http=HttpConfig(auth="none"),
    stream=StreamConfig(auth="ticket"),
    queues={
        "bound": QueueConfig(name="bound", max_retries=2),
        "ordered": QueueConfig(name="ordered", type="fifo", message_group_field="group", max_retries=2),
        "shared": QueueConfig(name="shared", max_retries=2),
        "shared-ordered": QueueConfig(
            name="shared-ordered", type="fifo", message_group_field="group", max_retries=2, concurrency=4
        ),
    },
)

SECRETS = {
    "PLAIN": "ssm:plain",
    "NESTED": "ssm:/shop/{stage}/nested",
    "LABELLED": "ssm:/shop/labelled:1",
    "TOKEN": "secretsmanager:shop/{stage}/token",
}
"""All there is to `secrets.read`."""

NARROW = ["any::act", "queue:bound", "topic:news", "topic:prices"]
"""What `narrow.run` uses."""


def everything() -> Worker:
    """Return the worker.

    `any::run` and `narrow::run` do what they are given with `trigger`; the others act as `_act` does.
    """
    worker = register_worker(worker_name="everything")
    run = _runner(worker)
    add = worker.register_function
    add("any::run", run, timeout=TIMEOUT)
    add("narrow::run", run, uses=NARROW, timeout=TIMEOUT)
    add("any::act", _act, timeout=TIMEOUT)
    triggers: Mapping[str, TriggerKind] = {
        "bound::work": Queue("bound"),
        "ordered::work": Queue("ordered"),
        "topic::plain": DurableSubscriber("news", max_retries=0),
        "topic::ordered": DurableSubscriber("prices", fifo=True),
        "topic::mixed": DurableSubscriber("prices"),
        "heard::news": Subscribe("news", condition="any::is-wanted"),
        "http::post": Http("POST", "/things"),
        "http::get": Http("GET", "/things"),
        "on::state": OnState("things", condition="any::is-wanted"),
        "on::stream": OnStream("feed"),
        # Once a day, a minute or two after the stage was deployed.
        "cron::rule": Cron("0 1 0 * * *"),
        "cron::schedule": Cron("0 2 1 * * *", timezone="Europe/Berlin"),
        "cron::tick": Cron("30,40 2 0 * * *"),
    }
    for function_id, trigger in triggers.items():
        worker.function(function_id, triggers=[trigger], uses=[], timeout=TIMEOUT)(_copy_of_act())
    add("any::is-wanted", _is_wanted, uses=[], timeout=TIMEOUT)
    worker.function("secrets::read", secrets=SECRETS, uses=[], timeout=TIMEOUT)(_read)
    return worker


def _runner(worker: Worker) -> Callable[[dict[str, Any]], Any]:
    def run(request: dict[str, Any]) -> Any:
        return worker.trigger(request)

    return run


def _copy_of_act() -> Callable[[Any], Any]:
    def act(data: Any) -> Any:
        return _act(data)

    return act


def _act(data: Any) -> Any:
    """Fail, return much, or return a short text.

    `{"fail": true}` fails at each attempt, `{"die": true}` at the last; `{"size": n}` returns n characters. A change
    of state or of a stream, or a request, has these members in what it carries.
    """
    told = data if isinstance(data, dict) else {}
    for member in ("new_value", "event", "query_params"):
        inner = told.get(member)
        told = {**told, **inner} if isinstance(inner, dict) else told
    if told.get("fail"):
        raise ValueError("as told")
    if told.get("die"):
        raise NonRetryableError("as told")
    size = int(told.get("size") or 0)
    if "path_params" in told:
        return {"status_code": 200, "body": {"text": "x" * size}}
    return "x" * size


def _is_wanted(_data: Any) -> bool:
    return True


def _read(name: str) -> str:
    return secret(name)
