"""Durable runs over http: what a client without this library sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import Http, Worker, WorkflowContext, register_worker
from iii_runtime.core.config import HttpConfig
from iii_runtime.core.http.prefer import MAX_WAIT, preferred_wait
from iii_runtime.engine.http_entry import HttpCall
from iii_runtime.hosts.embedded.origins import run_routes_rule
from iii_runtime.testing import Harness

SECOND = timedelta(seconds=1)


def shop() -> Worker:
    worker = register_worker(worker_name="shop")

    @worker.workflow("shop::buy", triggers=[Http("POST", "/orders")], workflow_id="id")
    async def buy(ctx: WorkflowContext, order: dict[str, Any]) -> dict[str, Any]:
        state = "waiting"

        @ctx.on_query("state")
        def tell(prefix: str = "") -> str:
            return prefix + state

        paid = await ctx.wait_for_signal("paid")
        if paid == "never":
            raise ValueError("it was never paid")
        state = "paid"
        return {"paid": paid}

    return worker


@asynccontextmanager
async def host() -> AsyncIterator[Harness]:
    async with Harness([shop()]) as running:
        yield running


async def ask(running: Harness, method: str, target: str, expected: int, json: Any = None, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    reply = await running.http(method, target, json=json, headers=named)
    assert reply.status == expected, reply.json()
    return reply.json()


async def test_a_run_goes_through_its_life() -> None:
    async with host() as running:
        reply = await running.http("POST", "/_iii/runs", json={"workflow": "shop::buy", "workflow_id": "a/b ü"})
        assert reply.status == 202
        run_id = reply.json()["run_id"]
        location = reply.headers["location"]
        assert location == f"/_iii/runs/a%2Fb%20%C3%BC?run_id={run_id}"
        described = await ask(running, "GET", location, 200)
        assert (described["workflow_id"], described["status"]) == ("a/b ü", "running")
        path = location.partition("?")[0]
        assert await ask(running, "GET", f"{path}/queries/state", 200) == {"answer": "waiting"}
        assert await ask(running, "POST", f"{path}/queries/state", 200, ["it is "]) == {"answer": "it is waiting"}
        assert (await ask(running, "GET", f"{path}/result", 202))["status"] == "running"
        await ask(running, "POST", f"{path}/signals/paid", 202, {"by": "card"})
        await running.idle()
        result = await ask(running, "GET", f"{path}/result?run_id={run_id}", 200)
        assert (result["status"], result["result"]) == ("completed", {"paid": {"by": "card"}})
        events = (await ask(running, "GET", f"{path}/history", 200))["events"]
        assert (events[0]["kind"], events[-1]["kind"]) == ("run_started", "run_closed")
        listed = await ask(running, "GET", "/_iii/runs?workflow=shop::buy&status=completed&limit=5", 200)
        assert [run["run_id"] for run in listed["runs"]] == [run_id]


async def test_the_start_of_a_workflow_by_its_route_says_where_the_run_is() -> None:
    async with host() as running:
        reply = await running.http("POST", "/orders", json={"id": "o-1"})
        assert reply.status == 202
        ids = reply.json()
        assert ids["workflow_id"] == "o-1"
        assert reply.headers["location"] == f"/_iii/runs/o-1?run_id={ids['run_id']}"
        assert (await ask(running, "GET", reply.headers["location"], 200))["run_id"] == ids["run_id"]


@pytest.mark.parametrize("target", ["/orders", "/_iii/runs"])
async def test_a_client_that_prefers_to_wait_gets_the_result(target: str) -> None:
    order = {"id": "o-1"}
    body = order if target == "/orders" else {"workflow": "shop::buy", "workflow_id": "o-1", "input": order}
    async with host() as running:
        waiting = asyncio.ensure_future(running.http("POST", target, json=body, headers={"Prefer": "wait=20"}))
        await running.idle()
        await running.advance(10 * SECOND)
        await ask(running, "POST", "/_iii/runs/o-1/signals/paid", 202, "cash")
        await running.idle()
        reply = await waiting
        assert (reply.status, reply.headers["preference-applied"]) == (200, "wait=20")
        answer = reply.json()
        assert (answer if target == "/orders" else answer["result"]) == {"paid": "cash"}


async def test_a_client_is_not_kept_waiting_longer_than_it_prefers() -> None:
    async with host() as running:
        waiting = asyncio.ensure_future(running.http("POST", "/orders", json={"id": "o"}, headers={"Prefer": "wait=2"}))
        await running.idle()
        await running.advance(2 * SECOND)
        reply = await waiting
        assert reply.status == 202
        assert reply.json()["workflow_id"] == "o"
        assert reply.headers["location"].startswith("/_iii/runs/o?")


async def test_a_run_that_fails_while_a_client_waits_is_an_error() -> None:
    async with host() as running:
        waiting = asyncio.ensure_future(running.http("POST", "/orders", json={"id": "o"}, headers={"Prefer": "wait=9"}))
        await running.idle()
        await ask(running, "POST", "/_iii/runs/o/signals/paid", 202, "never")
        await running.idle()
        reply = await waiting
        assert (reply.status, reply.json()["error"]["code"]) == (500, "run_failed")
        ended = await ask(running, "GET", "/_iii/runs/o/result", 200)
        assert (ended["status"], ended["error"]["type"]) == ("failed", "ValueError")


async def test_a_repeated_start_or_signal_with_the_same_key_counts_once() -> None:
    async with host() as running:
        first = await ask(running, "POST", "/_iii/runs", 202, {"workflow": "shop::buy"}, Idempotency_Key="k1")
        again = await ask(running, "POST", "/_iii/runs", 202, {"workflow": "shop::buy"}, Idempotency_Key="k1")
        assert (again["run_id"], again["is_new"]) == (first["run_id"], False)
        assert first["workflow_id"] == "k1"


@pytest.mark.parametrize(
    ("method", "target", "json", "status", "code"),
    [
        ("GET", "/_iii/runs/nobody", None, 404, "run_not_found"),
        ("POST", "/_iii/runs/nobody/signals/paid", 1, 404, "run_not_found"),
        ("POST", "/_iii/runs/nobody/resume", None, 404, "run_not_found"),
        ("POST", "/_iii/runs", {"workflow": "shop::none"}, 404, "function_not_found"),
        ("POST", "/_iii/runs", {"workflow": "shop::buy", "id_reuse": "?"}, 400, "run_request_invalid"),
        ("POST", "/_iii/runs", {}, 400, "run_request_invalid"),
        ("POST", "/_iii/runs", [1], 400, "BAD_REQUEST"),
        ("GET", "/_iii/runs?limit=many", None, 400, "BAD_REQUEST"),
        ("GET", "/_iii/runs/closed/queries/none", None, 400, "query_failed"),
        ("POST", "/_iii/runs/closed/cancel", None, 409, "run_closed"),
        ("POST", "/_iii/runs/closed/terminate", None, 409, "run_closed"),
        ("DELETE", "/_iii/runs/closed", None, 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/_iii/runs/closed/nothing", None, 404, "NOT_FOUND"),
        ("GET", "/_iii/nothing", None, 404, "NOT_FOUND"),
    ],
)
async def test_what_cannot_be_done_is_said_with_the_right_status(
    method: str, target: str, json: Any, status: int, code: str
) -> None:
    async with host() as running:
        await ask(running, "POST", "/_iii/runs", 202, {"workflow": "shop::buy", "workflow_id": "closed"})
        await ask(running, "POST", "/_iii/runs/closed/terminate", 202, {"reason": "for this test"})
        assert (await ask(running, method, target, status, json))["error"]["code"] == code


async def test_a_workflow_id_in_use_is_a_conflict() -> None:
    async with host() as running:
        start = {"workflow": "shop::buy", "workflow_id": "used"}
        await ask(running, "POST", "/_iii/runs", 202, start)
        assert (await ask(running, "POST", "/_iii/runs", 409, start))["error"]["code"] == "run_already_started"


async def test_a_body_that_a_page_could_send_unasked_is_refused() -> None:
    async with host() as running:
        body = b'{"workflow": "shop::buy"}'
        reply = await running.http("POST", "/_iii/runs", body=body, headers={"Content-Type": "text/plain"})
        assert reply.status == 400
        assert "application/json" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "is_let_in"),
    [
        ({"host": "127.0.0.1:3111"}, True),
        ({"host": "localhost:3111", "origin": "http://localhost:5173"}, True),
        ({"host": "127.0.0.1:3111", "origin": "https://evil.example"}, False),
        ({"host": "evil.example:3111"}, False),
        ({}, False),
    ],
)
def test_on_this_machine_only_its_own_programs_and_pages_reach_the_runs(
    headers: dict[str, str],
    is_let_in: bool,
) -> None:
    may = run_routes_rule(HttpConfig())
    assert may is not None
    assert may(HttpCall(method="GET", path="/_iii/runs", headers=tuple(headers.items()))) is is_let_in


def test_a_host_that_others_reach_shows_no_runs_unless_it_is_told_to() -> None:
    assert run_routes_rule(HttpConfig(host="0.0.0.0")) is None  # noqa: S104 - that is the case
    assert run_routes_rule(HttpConfig(run_routes=False)) is None
    may = run_routes_rule(HttpConfig(host="0.0.0.0", run_routes=True))  # noqa: S104
    assert may is not None
    assert may(HttpCall(method="GET", path="/_iii/runs", headers=(("host", "shop.example"),)))


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        (None, None),
        ("", None),
        ("respond-async", None),
        ("wait=10", 10 * SECOND),
        ('respond-async, Wait = "7" ; foo', 7 * SECOND),
        ("wait=0", timedelta(0)),
        ("wait=999999999", MAX_WAIT),
        ("wait=-1", None),
        ("waits=1", None),
        ("wait=1e3", None),
    ],
)
def test_a_preference_to_wait_is_read_as_the_standard_has_it(header: str | None, wait: timedelta | None) -> None:
    assert preferred_wait(header) == wait
