"""From an AWS event file to the payloads of trigger requests."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import assert_never

from iii_runtime.cli.connection import Engine
from iii_runtime.cli.cron import parse_detail
from iii_runtime.cli.functions import ListedFunction, listed
from iii_runtime.cli.json_argument import read_json_file
from iii_runtime.core.cron import cron_payload, job_id
from iii_runtime.core.errors import InvocationError
from iii_runtime.core.http import Matched, Route, RouteTable, build_request, parse_route
from iii_runtime.core.payload import Json, to_json
from iii_runtime.engine.http_entry import HttpCall
from iii_runtime.hosts.events import CronTick, QueuePayloads, parse_event


def payloads_of(path: Path, function_id: str, live: Engine, now: datetime) -> tuple[Json, ...]:
    """Return what a function receives for an event: the http request, each message, or the tick.

    Args:
        path: The event file.
        function_id: The function; its http routes and schedule count.
        live: Where it is registered.
        now: The present, aware.

    Raises:
        EventUnknownError: The file is no event this runtime knows.
        PayloadError: The file is not JSON, or the body of the request is binary.
        InvocationError: `function_not_found`; `event_not_for_function`: none of its http routes fits the request.
    """
    event = parse_event(read_json_file(path))
    if isinstance(event, QueuePayloads):
        return event.payloads
    function = _function(function_id, live)
    if isinstance(event, HttpCall):
        return (_request(event, function),)
    if isinstance(event, CronTick):
        return (_tick(event, function, now),)
    assert_never(event)


def _function(function_id: str, live: Engine) -> ListedFunction:
    for function in listed(live.ask("engine::functions::list")):
        if function["function_id"] == function_id:
            return function
    raise InvocationError("function_not_found", f"Function '{function_id}' not found.", function_id)


def _request(call: HttpCall, function: ListedFunction) -> Json:
    details = _details(function, "http")
    routes: list[Route[None]] = []
    for detail in details:
        method, _, pattern = detail.partition(" ")
        routes.append(parse_route(method, pattern, None))
    match = RouteTable(routes).match(call.method, call.path)
    if not isinstance(match, Matched):
        known = ", ".join(details) or "none"
        raise InvocationError(
            "event_not_for_function",
            f"the event is {call.method} {call.path}, and no http route of the function fits. Its routes: {known}.",
            function["function_id"],
        )
    request = build_request(
        match.route,
        method=call.method,
        path_params=match.path_params,
        query=call.query,
        headers=call.headers,
        body=call.body,
        caller=call.caller,
    )
    return to_json(request, "the request")


def _tick(event: CronTick, function: ListedFunction, now: datetime) -> Json:
    name = function["function_id"]
    details = _details(function, "cron")
    job = job_id(name, parse_detail(details[0])) if details else name
    return to_json(cron_payload(job, event.scheduled_at, now))


def _details(function: ListedFunction, type_name: str) -> list[str]:
    return [trigger["detail"] for trigger in function["triggers"] if trigger["type"] == type_name]
