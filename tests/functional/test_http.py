"""An http request from its bytes to the answer: what the function gets, what the caller gets, and when only once."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import ApiRequest, ApiResponse, Http, Worker, current_invocation
from iii_runtime.core.config import CorsConfig, HttpConfig
from iii_runtime.core.errors import IiiError, StoreError
from iii_runtime.engine.stores import Stores
from iii_runtime.testing import Harness

Host = Callable[..., Harness]


def code_of(reply: Any) -> str:
    return str(reply.json()["error"]["code"])


async def test_a_function_gets_the_request_of_iii(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.function("users::get", triggers=[Http("POST", "/users/:id")])(seen.append)
    async with host() as harness:
        await harness.http(
            "post", "/users/a%20b?q=1&q=2&empty=", json={"n": 1}, headers={"X-Tenant": "t1", "Accept": "a/b"}
        )
        assert seen == [
            {
                "path": "/users/:id",
                "method": "POST",
                "path_params": {"id": "a b"},
                "query_params": {"q": "2", "empty": ""},
                "headers": {"content-type": "application/json", "x-tenant": "t1", "accept": "a/b"},
                "body": {"n": 1},
                "trigger": {"type": "http", "path": "/users/:id", "method": "POST"},
                "caller": None,
            }
        ]


@pytest.mark.parametrize(
    ("returned", "status", "body"),
    [
        ({"status_code": 201, "body": {"id": 1}}, 201, b'{"id":1}'),
        ({"statusCode": 202, "body": None}, 202, b"null"),
        ({"order_id": "o1"}, 200, b"{}"),
        ({}, 200, b"{}"),
        (None, 200, b"{}"),
        ([1, 2], 200, b"[1,2]"),
        ("text", 200, b'"text"'),
        ({"body": "raw", "headers": {"Content-Type": "text/plain"}}, 200, b"raw"),
        ({"body": "raw", "headers": ["Content-Type: text/plain"]}, 200, b"raw"),
        ({"status_code": 204, "body": {"ignored": 1}}, 204, b""),
        (ApiResponse(status_code=418, body={"tea": True}), 418, b'{"tea":true}'),
    ],
)
async def test_a_result_becomes_an_answer_by_the_rules_of_iii(
    worker: Worker, host: Host, returned: Any, status: int, body: bytes
) -> None:
    worker.function("a::b", triggers=[Http("GET", "/a")])(lambda data: returned)
    async with host() as harness:
        reply = await harness.http("GET", "/a")
        assert (reply.status, reply.body) == (status, body)


async def test_an_async_handler_gets_the_request_as_a_value(worker: Worker, host: Host) -> None:
    @worker.function("a::b", triggers=[Http("PUT", "/a/{id}")])
    async def handler(request: ApiRequest[dict[str, int]]) -> ApiResponse[Any]:
        return ApiResponse(body=[request.path_params["id"], request.body], headers={"X-Answer": "yes"})

    async with host() as harness:
        reply = await harness.http("PUT", "/a/7", json={"n": 1})
        assert (reply.json(), reply.headers["x-answer"]) == (["7", {"n": 1}], "yes")


async def test_errors_have_the_envelope_of_iii(worker: Worker, host: Host) -> None:
    def fail(data: Any) -> None:
        raise ValueError("the bank said \ud800")

    worker.function("a::fail", triggers=[Http("GET", "/fail")])(fail)
    worker.function("a::odd", triggers=[Http("GET", "/odd")])(lambda data: {"status_code": 999})
    worker.register_trigger({"type": "http", "function_id": "a::gone", "config": {"api_path": "/gone"}})
    async with host() as harness:
        failed = await harness.http("GET", "/fail")
        assert failed.status == 500
        assert set(failed.json()) == {"error"}
        assert set(failed.json()["error"]) == {"code", "message", "error_id"}
        assert code_of(failed) == "invocation_failed"
        assert failed.json()["error"]["message"] == "the bank said \\ud800"
        odd = await harness.http("GET", "/odd")
        assert (odd.status, code_of(odd)) == (500, "RESPONSE_INVALID")
        gone = await harness.http("GET", "/gone")
        assert (gone.status, code_of(gone)) == (500, "function_not_found")
        assert failed.headers["content-type"] == "application/json"


async def test_no_route_is_404_and_no_method_is_405(worker: Worker, host: Host) -> None:
    worker.function("a::b", triggers=[Http("GET", "/a"), Http("POST", "/a")])(lambda data: None)
    async with host() as harness:
        missing = await harness.http("GET", "/b")
        assert (missing.status, code_of(missing)) == (404, "NOT_FOUND")
        refused = await harness.http("DELETE", "/a")
        assert (refused.status, code_of(refused)) == (405, "METHOD_NOT_ALLOWED")
        assert "GET" in refused.headers["allow"]
        assert (await harness.http("HEAD", "/a")).status == 200


@pytest.mark.parametrize("body", [b"{", b"{'a': 1}", b"NaN", b"\xff", b'{"a": 1e999}'])
async def test_json_that_does_not_parse_is_400_and_runs_nothing(worker: Worker, host: Host, body: bytes) -> None:
    seen: list[Any] = []
    worker.function("a::b", triggers=[Http("POST", "/a")])(seen.append)
    async with host() as harness:
        reply = await harness.http("POST", "/a", body=body, headers={"Content-Type": "application/json"})
        assert (reply.status, code_of(reply)) == (400, "BAD_REQUEST")
        assert seen == []


async def test_others_are_answered_while_a_large_body_is_decoded(worker: Worker, host: Host) -> None:
    answered: list[str] = []

    @worker.function("a::it", triggers=[Http("POST", "/:name")])
    def it(request: dict[str, Any]) -> dict[str, Any]:
        answered.append(request["path_params"]["name"])
        return {"body": len(request["body"])}

    json = {"Content-Type": "application/json"}
    async with host() as harness:
        large = asyncio.create_task(harness.http("POST", "/large", body=b"[" + b"0," * 2_000_000 + b"0]", headers=json))
        await asyncio.sleep(0)
        assert (await harness.http("POST", "/small", body=b"[]", headers=json)).json() == 0
        assert answered == ["small"]
        assert (await large).json() == 2_000_001
        refused = await harness.http("POST", "/large", body=b"[" + b"0," * 100_000, headers=json)
        assert (refused.status, code_of(refused)) == (400, "BAD_REQUEST")


@pytest.mark.parametrize("character", ["x", "\u00e9", "\ud800"])
async def test_an_answer_carries_4_kib_of_an_error(worker: Worker, host: Host, character: str) -> None:
    @worker.function("a::it", triggers=[Http("GET", "/it")])
    def it(_request: dict[str, Any]) -> None:
        raise ValueError("first " + character * 2_000_000)

    async with host() as harness:
        reply = await harness.http("GET", "/it")
    assert (reply.status, code_of(reply)) == (500, "invocation_failed")
    assert reply.json()["error"]["message"].startswith("first ")
    assert 4000 < len(reply.body) < 4096 + 200


async def test_an_error_without_a_text_is_told_by_its_type(worker: Worker, host: Host) -> None:
    class ExitingError(Exception):
        def __str__(self) -> str:
            raise SystemExit(1)

    @worker.function("a::it", triggers=[Http("GET", "/:name")])
    def it(request: dict[str, Any]) -> None:
        raise ValueError if request["path_params"]["name"] == "empty" else ExitingError

    async with host() as harness:
        assert (await harness.http("GET", "/empty")).json()["error"]["message"] == "ValueError()"
        assert "ExitingError" in (await harness.http("GET", "/exits")).json()["error"]["message"]


async def test_a_body_beyond_the_limit_is_413_and_runs_nothing(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.function("a::b", triggers=[Http("POST", "/a")])(seen.append)
    async with host() as harness:
        body = b'"' + b"x" * (32 * 1024 * 1024) + b'"'
        reply = await harness.http("POST", "/a", body=body, headers={"Content-Type": "application/json"})
        assert (reply.status, code_of(reply)) == (413, "PAYLOAD_TOO_LARGE")
        assert seen == []


async def test_a_false_condition_is_422_and_a_failing_one_500(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    go = threading.Event()

    def condition(request: Any) -> Any:
        answer = request["query_params"]["answer"]
        request["body"] = "changed by the condition"
        if answer == "raise":
            raise ValueError("cannot tell")
        if answer == "wait":
            go.wait(10)
        return {"false": False, "null": None, "zero": 0}.get(answer, True)

    worker.function("is::open", timeout=timedelta(milliseconds=20))(condition)
    worker.function("a::b", triggers=[Http("GET", "/a", condition="is::open")])(seen.append)
    async with host() as harness:
        skipped = await harness.http("GET", "/a?answer=false")
        assert skipped.status == 422
        assert code_of(skipped) == "CONDITION_NOT_MET"
        assert skipped.json()["skipped"] is True
        failed = await harness.http("GET", "/a?answer=raise")
        assert (failed.status, code_of(failed)) == (500, "invocation_failed")
        slow = await harness.http("GET", "/a?answer=wait")
        assert (slow.status, code_of(slow)) == (500, "TIMEOUT")
        go.set()
        assert seen == []
        for answer in ("null", "zero", "true"):
            assert (await harness.http("GET", f"/a?answer={answer}")).status == 200
        assert [request["body"] for request in seen] == [None] * 3


async def test_a_function_that_takes_too_long_is_504(worker: Worker, host: Host) -> None:
    go = threading.Event()
    worker.function("a::own", triggers=[Http("GET", "/own")], timeout=timedelta(milliseconds=20))(
        lambda data: go.wait(10)
    )
    worker.function("a::default", triggers=[Http("GET", "/default")])(lambda data: go.wait(10))
    async with host(http=HttpConfig(default_timeout_ms=30)) as harness:
        own = await harness.http("GET", "/own")
        assert (own.status, code_of(own)) == (504, "TIMEOUT")
        assert own.json()["error"]["message"] == "the function did not answer within 20 ms"
        default = await harness.http("GET", "/default")
        assert default.json()["error"]["message"] == "the function did not answer within 30 ms"
        go.set()


async def test_a_timeout_of_a_called_function_is_an_error_of_the_caller(worker: Worker, host: Host) -> None:
    go = threading.Event()
    worker.register_function("a::slow", lambda data: go.wait(10), timeout=timedelta(milliseconds=20))
    worker.function("a::b", triggers=[Http("GET", "/a")])(lambda data: worker.trigger({"function_id": "a::slow"}))
    async with host() as harness:
        reply = await harness.http("GET", "/a")
        assert (reply.status, code_of(reply)) == (500, "invocation_failed")
        assert "did not end within" in reply.json()["error"]["message"]
        go.set()


async def test_a_host_at_its_limit_of_requests_says_when_to_come_back(worker: Worker, host: Host) -> None:
    started, go = threading.Event(), threading.Event()

    def wait(data: Any) -> None:
        started.set()
        go.wait(10)

    worker.function("a::b", triggers=[Http("GET", "/a")])(wait)
    async with host(http=HttpConfig(concurrency_request_limit=1)) as harness:
        first = asyncio.create_task(harness.http("GET", "/a"))
        assert await asyncio.to_thread(started.wait, 10)
        refused = await harness.http("GET", "/a")
        assert (refused.status, code_of(refused), refused.headers["retry-after"]) == (503, "UNAVAILABLE", "1")
        go.set()
        assert (await first).status == 200
        assert (await harness.http("GET", "/a")).status == 200


class TestIdempotencyKey:
    async def test_a_repeated_request_gets_the_first_answer_and_runs_nothing(self, worker: Worker, host: Host) -> None:
        runs: list[Any] = []

        @worker.function("orders::create", triggers=[Http("POST", "/orders"), Http("GET", "/orders")])
        def create(request: Any) -> Any:
            runs.append(request["body"])
            return {"status_code": 201, "body": {"n": len(runs)}, "headers": {"X-Order": "o1"}}

        key = {"Idempotency-Key": "k1"}
        async with host() as harness:
            first = await harness.http("POST", "/orders", json={"a": 1}, headers=key)
            again = await harness.http("POST", "/orders", json={"a": 1}, headers=key)
            assert (first.status, first.json(), first.headers["x-order"]) == (201, {"n": 1}, "o1")
            assert (again.status, again.body, again.headers["x-order"]) == (201, first.body, "o1")
            assert "idempotency-replayed" not in first.headers
            assert again.headers["idempotency-replayed"] == "true"
            assert (await harness.http("POST", "/orders", json={"a": 1}, headers={"idempotency-key": "k2"})).json() == {
                "n": 2
            }
            assert (await harness.http("POST", "/orders", json={"a": 1})).json() == {"n": 3}
            assert (await harness.http("GET", "/orders", headers=key)).json() == {"n": 4}
            assert (await harness.http("GET", "/orders", headers=key)).json() == {"n": 5}
            await harness.restart()
            after = await harness.http("POST", "/orders", json={"a": 1}, headers=key)
            assert (after.json(), after.headers["idempotency-replayed"]) == ({"n": 1}, "true")
            await harness.advance(timedelta(hours=24))
            assert (await harness.http("POST", "/orders", json={"a": 1}, headers=key)).json() == {"n": 6}

    async def test_the_key_of_another_request_is_refused(self, worker: Worker, host: Host) -> None:
        runs: list[Any] = []
        worker.function("orders::create", triggers=[Http("POST", "/orders/:id")])(runs.append)
        key = {"Idempotency-Key": "k1"}
        async with host() as harness:
            await harness.http("POST", "/orders/1", json={"a": 1}, headers=key)
            for target, body in (("/orders/1", {"a": 2}), ("/orders/2", {"a": 1}), ("/orders/1?x=1", {"a": 1})):
                reply = await harness.http("POST", target, json=body, headers=key)
                assert (reply.status, code_of(reply)) == (422, "IDEMPOTENCY_KEY_REUSED")
            for wrong in ("", "x" * 257):
                reply = await harness.http("POST", "/orders/1", json={"a": 1}, headers={"Idempotency-Key": wrong})
                assert (reply.status, code_of(reply)) == (400, "IDEMPOTENCY_KEY_INVALID")
            assert len(runs) == 1

    async def test_a_repetition_while_the_first_runs_is_refused(self, worker: Worker, host: Host) -> None:
        started, go = threading.Event(), threading.Event()

        @worker.function("orders::create", triggers=[Http("POST", "/orders")])
        def create(request: Any) -> Any:
            started.set()
            go.wait(10)
            return {"body": "done"}

        key = {"Idempotency-Key": "k1"}
        async with host() as harness:
            first = asyncio.create_task(harness.http("POST", "/orders", json={}, headers=key))
            assert await asyncio.to_thread(started.wait, 10)
            reply = await harness.http("POST", "/orders", json={}, headers=key)
            assert (reply.status, code_of(reply)) == (409, "IDEMPOTENCY_KEY_IN_USE")
            go.set()
            assert (await first).json() == "done"
            assert (await harness.http("POST", "/orders", json={}, headers=key)).json() == "done"

    async def test_a_request_whose_host_died_is_taken_over(self, worker: Worker, host: Host) -> None:
        started, go = threading.Event(), threading.Event()
        runs: list[int] = []

        @worker.function("orders::create", triggers=[Http("POST", "/orders")])
        def create(request: Any) -> Any:
            runs.append(1)
            if len(runs) == 1:
                started.set()
                go.wait(10)
            return {"body": f"run {len(runs)}"}

        key = {"Idempotency-Key": "k1"}
        async with host() as harness:
            first = asyncio.create_task(harness.http("POST", "/orders", json={}, headers=key))
            assert await asyncio.to_thread(started.wait, 10)
            first.cancel()
            await harness.restart()
            second = await harness.http("POST", "/orders", json={}, headers=key)
            assert (second.status, second.json()) == (200, "run 2")
            go.set()
            assert (await harness.http("POST", "/orders", json={}, headers=key)).json() == "run 2"

    async def test_the_answer_to_a_failure_is_repeated_too(self, worker: Worker, host: Host) -> None:
        runs: list[int] = []

        @worker.function("orders::create", triggers=[Http("POST", "/orders")])
        def create(request: Any) -> Any:
            runs.append(1)
            raise ValueError("no")

        async with host() as harness:
            replies = [
                await harness.http("POST", "/orders", json={}, headers={"Idempotency-Key": "k1"}) for _ in range(2)
            ]
            assert [reply.status for reply in replies] == [500, 500]
            assert replies[0].body == replies[1].body
            assert len(runs) == 1

    async def test_an_answer_that_cannot_be_kept_yet_reaches_the_caller_and_is_kept_later(
        self, worker: Worker, host: Host
    ) -> None:
        """The function has run; its caller must not believe otherwise, now or later."""

        class Failing:
            def __init__(self, inner: Any) -> None:
                self._inner = inner
                self.begin = inner.begin
                self._tries = 0

            async def finish(self, key: str, response: Any) -> None:
                self._tries += 1
                if self._tries <= 3:
                    raise StoreError("the disk is full", code="store_full")
                await self._inner.finish(key, response)

        def wrap(stores: Stores) -> Stores:
            responses: Any = Failing(stores.responses)
            return dataclasses.replace(stores, responses=responses)

        worker.function("orders::create", triggers=[Http("POST", "/orders")])(lambda data: {"body": "done"})
        key = {"Idempotency-Key": "k1"}
        async with host(wrap=wrap) as harness:
            assert (await harness.http("POST", "/orders", json={}, headers=key)).json() == "done"
            again = await harness.http("POST", "/orders", json={}, headers=key)
            assert (again.status, code_of(again)) == (409, "IDEMPOTENCY_KEY_IN_USE")
            await harness.advance(timedelta(seconds=3))
            assert (await harness.http("POST", "/orders", json={}, headers=key)).json() == "done"

    @pytest.mark.parametrize(
        ("refusal", "status", "code"),
        [
            ("store_throttled", 503, "UNAVAILABLE"),
            ("store_unavailable", 503, "UNAVAILABLE"),
            ("store_full", 503, "UNAVAILABLE"),
            ("store_denied", 500, "store_denied"),
            ("store_corrupt", 500, "store_corrupt"),
        ],
    )
    async def test_a_request_whose_key_cannot_be_reserved_runs_nothing_and_says_whether_to_repeat_it(
        self, worker: Worker, host: Host, refusal: str, status: int, code: str
    ) -> None:
        class Refusing:
            def __init__(self, inner: Any) -> None:
                self._inner = inner
                self.finish = inner.finish
                self._refuses = True

            async def begin(self, *arguments: Any) -> Any:
                if not self._refuses:
                    return await self._inner.begin(*arguments)
                self._refuses = False
                raise StoreError("not now", code=refusal)

        def wrap(stores: Stores) -> Stores:
            responses: Any = Refusing(stores.responses)
            return dataclasses.replace(stores, responses=responses)

        runs: list[Any] = []
        worker.function("orders::create", triggers=[Http("POST", "/orders")])(runs.append)
        key = {"Idempotency-Key": "k1"}
        async with host(wrap=wrap) as harness:
            refused = await harness.http("POST", "/orders", json={}, headers=key)
            assert (refused.status, code_of(refused), runs) == (status, code, [])
            assert ("retry-after" in refused.headers) == (status == 503)
            assert (await harness.http("POST", "/orders", json={}, headers=key)).status == 200
            assert len(runs) == 1

    async def test_a_result_that_cannot_be_read_is_a_failure_of_the_function_and_repeated_too(
        self, worker: Worker, host: Host
    ) -> None:
        class Unreadable(dict[str, Any]):
            def get(self, *_arguments: Any) -> Any:
                raise IiiError("evil", code="evil")

            keys = items = get

        worker.function("orders::create", triggers=[Http("POST", "/orders")])(lambda data: Unreadable(body=1))
        async with host() as harness:
            for headers in ({}, {"Idempotency-Key": "k1"}, {"Idempotency-Key": "k1"}):
                reply = await harness.http("POST", "/orders", json={}, headers=headers)
                assert (reply.status, code_of(reply)) == (500, "RESPONSE_INVALID")


class TestCors:
    @pytest.fixture
    def cors(self) -> HttpConfig:
        return HttpConfig(cors=CorsConfig(allowed_origins=("http://localhost:3113",), allowed_methods=("GET", "POST")))

    async def test_a_page_of_an_allowed_origin_may_read_every_answer(
        self, worker: Worker, host: Host, cors: HttpConfig
    ) -> None:
        worker.function("a::b", triggers=[Http("POST", "/a")])(lambda data: None)
        origin = {"Origin": "http://localhost:3113"}
        async with host(http=cors) as harness:
            for reply in (
                await harness.http("POST", "/a", headers=origin),
                await harness.http("POST", "/missing", headers=origin),
            ):
                assert reply.headers["access-control-allow-origin"] == "http://localhost:3113"
                assert reply.headers["vary"] == "Origin"
            other = await harness.http("POST", "/a", headers={"Origin": "http://evil.example"})
            assert other.status == 200
            assert "access-control-allow-origin" not in other.headers

    async def test_a_preflight_is_answered_without_running_anything(
        self, worker: Worker, host: Host, cors: HttpConfig
    ) -> None:
        seen: list[Any] = []
        worker.function("a::b", triggers=[Http("POST", "/a")])(seen.append)
        asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        async with host(http=cors) as harness:
            granted = await harness.http("OPTIONS", "/a", headers={"Origin": "http://localhost:3113", **asks})
            assert granted.status == 204
            assert granted.headers["access-control-allow-methods"] == "GET, POST"
            assert granted.headers["access-control-allow-headers"] == "content-type"
            refused = await harness.http("OPTIONS", "/a", headers={"Origin": "http://evil.example", **asks})
            assert "access-control-allow-origin" not in refused.headers
            assert seen == []

    async def test_without_cors_in_the_config_there_are_no_cors_headers(self, worker: Worker, host: Host) -> None:
        worker.function("a::b", triggers=[Http("GET", "/a")])(lambda data: None)
        async with host() as harness:
            reply = await harness.http("GET", "/a", headers={"Origin": "http://localhost:3113"})
            assert not [name for name in reply.headers if name.startswith("access-control")]


async def test_a_trace_begins_anew_if_the_header_is_malformed(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.function("a::b", triggers=[Http("GET", "/a")])(lambda data: seen.append(current_invocation()))
    async with host() as harness:
        await harness.http("GET", "/a", headers={"traceparent": "garbage", "baggage": "ü"})
        assert seen[0].trace_id is not None
        assert seen[0].baggage is None
