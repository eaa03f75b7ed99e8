"""What API Gateway does to requests and answers, and what a function learns of who calls."""

from __future__ import annotations

from typing import Any

import pytest

from iii_runtime import ApiRequest, Http, IamCaller, JwtCaller, Worker, register_worker
from iii_runtime.core.config import Config, HttpConfig, JwtConfig
from tests.aws.authorizers import bearer, signed
from tests.aws.gateway import HttpAnswer
from tests.aws.simulator import Simulator

ISSUER = "https://issuer.example"
CONFIG = Config(http=HttpConfig(auth="jwt", jwt=JwtConfig(issuer=ISSUER, audience=("orders",))))
TOKEN = {"iss": ISSUER, "aud": "orders", "exp": 2_000_000_000, "groups": ["admins", "users"], "scope": "read write"}
ARN = "arn:aws:sts::123456789012:assumed-role/clients/session"
PRINCIPAL = {"accountId": "123456789012", "callerId": "AROA1:session", "userArn": ARN, "userId": "AROA1:session"}


@pytest.fixture
def worker() -> Worker:
    return register_worker(worker_name="app")


def request(simulator: Simulator, method: str, path: str, headers: dict[str, str] | None = None) -> HttpAnswer:
    return simulator.http.request(method, path, "", tuple((headers or {}).items()), b"")


def test_a_function_learns_who_calls_and_whom_the_api_refuses_never_reaches_it(worker: Worker) -> None:
    seen: list[Any] = []

    @worker.function(
        "a::b", triggers=[Http("GET", "/jwt"), Http("GET", "/iam", auth="iam"), Http("GET", "/open", auth="none")]
    )
    def _handler(request: ApiRequest[None]) -> None:
        seen.append(request.caller)

    with Simulator([worker], CONFIG) as simulator:
        simulator.http.authorizers.principals["AKIA1"] = PRINCIPAL
        asked = [
            ("/jwt", bearer(sub="ada", **TOKEN), 200),
            ("/iam", signed("AKIA1"), 200),
            ("/open", bearer(sub="ada", **TOKEN), 200),
            ("/jwt", {}, 401),
            ("/jwt", bearer(sub="ada", **TOKEN | {"iss": "https://other.example"}), 401),
            ("/iam", {}, 403),
            ("/iam", signed("AKIA2"), 403),
        ]
        for path, headers, status in asked:
            assert request(simulator, "GET", path, headers).status == status, path
    claims = {"iss": ISSUER, "aud": "orders", "exp": "2000000000", "groups": "[admins users]", "scope": "read write"}
    assert seen == [
        JwtCaller(claims={"sub": "ada", **claims}, scopes=("read", "write")),
        IamCaller(arn=ARN, account="123456789012", user_id="AROA1:session"),
        None,
    ]


def test_two_callers_with_one_idempotency_key_get_their_own_answers(worker: Worker) -> None:
    worker.function("a::b", triggers=[Http("POST", "/a")])(lambda data: {"body": data["caller"]["claims"]["sub"]})
    with Simulator([worker], CONFIG) as simulator:
        answers = [
            request(simulator, "POST", "/a", {**bearer(sub=sub, **TOKEN), "Idempotency-Key": "k-1"})
            for sub in ("ada", "bob", "ada")
        ]
    assert [answer.body for answer in answers] == [b'"ada"', b'"bob"', b'"ada"']
    assert ["idempotency-replayed" in dict(answer.headers) for answer in answers] == [False, False, True]


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/a", 200), ("/a/", 404), ("/a/b", 200), ("/a/b/", 404), ("/a//", 404), ("//a", 404)],
)
def test_a_slash_at_the_end_of_a_path_makes_it_another_one(worker: Worker, path: str, status: int) -> None:
    worker.function("a::b", triggers=[Http("GET", "/"), Http("GET", "/a/"), Http("GET", "/a/:id/")])(lambda data: None)
    with Simulator([worker]) as simulator:
        assert request(simulator, "GET", path).status == status


def test_headers_beyond_what_lambda_returns_are_an_error_with_a_code(worker: Worker) -> None:
    headers = {f"X-Part-{number}": "a" * 1_000_000 for number in range(7)}
    worker.function("a::b", triggers=[Http("GET", "/a")])(lambda data: {"headers": headers})
    with Simulator([worker]) as simulator:
        answer = request(simulator, "GET", "/a")
    assert (answer.status, b"RESPONSE_TOO_LARGE" in answer.body) == (500, True)


@pytest.mark.parametrize(("length", "status"), [(10_240 - 15, 200), (10_240 - 14, 431)])
def test_a_request_with_more_in_its_headers_than_the_api_takes_reaches_nobody(
    worker: Worker, length: int, status: int
) -> None:
    seen: list[Any] = []
    worker.function("a::b", triggers=[Http("GET", "/a")])(seen.append)
    with Simulator([worker]) as simulator:
        assert request(simulator, "GET", "/a", {"X-Long": "a" * length}).status == status
    assert len(seen) == (status == 200)
