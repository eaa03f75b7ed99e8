"""From a request to its answer, where nothing but the engine is needed: unexpected failures, problems of an input."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest

from iii_runtime import ApiRequest, Http, IamCaller, InputInvalidError, JwtCaller, Worker, register_worker
from iii_runtime.adapters.threads import ThreadExecutor
from iii_runtime.core.api_types import Caller
from iii_runtime.core.config import Config
from iii_runtime.engine.app import App
from iii_runtime.engine.http_entry import HttpCall, HttpEntry
from iii_runtime.engine.runtime import Runtime
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import memory_stores

KEY = ("Idempotency-Key", "k-1")


ADA = JwtCaller(claims={"iss": "https://issuer.example", "sub": "ada", "exp": "1"})
SESSION = IamCaller(arn="arn:aws:sts::1:assumed-role/r/s", account="1", user_id="AROA1:s", cognito_identity="eu:1")


@pytest.fixture
def worker() -> Worker:
    return register_worker(worker_name="app")


@pytest.fixture
def executor() -> Iterator[ThreadExecutor]:
    executor = ThreadExecutor()
    yield executor
    executor.close()


def runtime_of(worker: Worker, executor: ThreadExecutor, config: Config | None = None) -> Runtime:
    return Runtime(App(config or Config(), [worker]), memory_stores(SkipClock(), SequenceIds()), executor)


async def asked(entry: HttpEntry, path: str, *headers: tuple[str, str], body: object = None, **more: Any) -> Any:
    """Return status and body of a POST."""
    sent = (("Content-Type", "application/json"), *headers)
    call = HttpCall(method="POST", path=path, headers=sent, body=json.dumps(body).encode(), **more)
    reply = await entry.handle(call)
    return reply.status, json.loads(reply.body)


async def test_a_failure_nobody_expected_is_told_and_the_same_under_its_key(
    worker: Worker, executor: ThreadExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.function("a::b", triggers=[Http("POST", "/a")])(lambda data: None)
    runtime = runtime_of(worker, executor)
    runs: list[object] = []

    async def fail(call: object) -> object:
        runs.append(call)
        raise RuntimeError("nobody expected this")

    monkeypatch.setattr(runtime.invoker, "invoke_raw", fail)
    entry = HttpEntry(runtime, "host-1")
    for headers in ((), (KEY,), (KEY,)):
        status, body = await asked(entry, "/a", *headers)
        assert (status, body["error"]["code"]) == (500, "INTERNAL_ERROR")
        assert "nobody" not in body["error"]["message"]
    assert len(runs) == 2


async def test_an_input_that_a_handler_refuses_is_a_422_whatever_its_problems_are(
    worker: Worker, executor: ThreadExecutor
) -> None:
    def refuse(_data: object) -> None:
        raise InputInvalidError("no", [{"value": object()}])

    worker.function("a::refuse", triggers=[Http("POST", "/refuse")])(refuse)
    entry = HttpEntry(runtime_of(worker, executor), "host-1")
    status, body = await asked(entry, "/refuse")
    assert (status, body["error"]["code"], len(body["error"]["details"])) == (422, "VALIDATION_FAILED", 1)


async def test_a_handler_gets_the_caller(worker: Worker, executor: ThreadExecutor) -> None:
    seen: list[Caller | None] = []

    @worker.function("a::b", triggers=[Http("POST", "/a")])
    def _handler(request: ApiRequest[None]) -> None:
        seen.append(request.caller)

    entry = HttpEntry(runtime_of(worker, executor), "host-1")
    for caller in (ADA, SESSION, None):
        await asked(entry, "/a", caller=caller)
    assert seen == [ADA, SESSION, None]


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (ADA, ADA, True),
        (ADA, JwtCaller(claims={**ADA.claims, "exp": "2"}), True),
        (ADA, JwtCaller(claims={**ADA.claims, "sub": "bob"}), False),
        (ADA, JwtCaller(claims={**ADA.claims, "iss": "https://other.example"}), False),
        (ADA, None, False),
        (JwtCaller(claims={"client_id": "1"}), JwtCaller(claims={"client_id": "1"}), True),
        (JwtCaller(claims={"client_id": "1"}), JwtCaller(claims={"client_id": "2"}), False),
        (SESSION, SESSION, True),
        (SESSION, dataclasses.replace(SESSION, cognito_identity="eu:2"), False),
        (SESSION, dataclasses.replace(SESSION, arn="arn:aws:sts::1:assumed-role/r/t", user_id="AROA1:t"), False),
        (SESSION, ADA, False),
        (None, None, True),
    ],
)
async def test_nobody_gets_the_answer_of_another_caller_under_the_same_key(
    worker: Worker, executor: ThreadExecutor, first: Caller | None, second: Caller | None, *, is_same: bool
) -> None:
    runs: list[object] = []

    @worker.function("a::b", triggers=[Http("POST", "/a")])
    def _handler(request: dict[str, Any]) -> dict[str, Any]:
        runs.append(request)
        return {"body": request["caller"]}

    entry = HttpEntry(runtime_of(worker, executor), "host-1")
    answers = [await asked(entry, "/a", KEY, caller=caller) for caller in (first, second)]
    assert len(runs) == (1 if is_same else 2)
    assert (answers[0] == answers[1]) == is_same
