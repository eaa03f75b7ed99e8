"""What events and answers look like on the wire between Lambda and the runtime."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iii_runtime.adapters.aws.blob_store import S3BlobStore
from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.remote_calls import unpack_answer
from iii_runtime.adapters.system import SystemClock
from tests.lambda_runtime.built import DEPLOYMENT
from tests.lambda_runtime.conftest import Start
from tests.lambda_runtime.events import call, http, trigger
from tests.lambda_runtime.runtime_api import LARGEST_RESPONSE

VALUES: list[Any] = [
    None,
    True,
    "",
    'Grüße, 日本, \U0001f375, \u0000, \u2028, \\ud800, "quoted", </script>',
    {"ключ": {"\U0001f511": []}},
    0,
    -0.0,
    0.1,
    1e308,
    5e-324,
    1.0,
    123456789.123456789,
    2**53 + 1,
    -(2**63),
    2**64 - 1,
    "1.10",
    [[[[{}]]]],
]

RUNTIMES = ["AWS_Lambda_python3.11", "AWS_Lambda_python3.14"]
"""The client writes ASCII under the first one, and UTF-8 under the second."""

pytestmark = pytest.mark.process


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("is_ascii", [True, False])
def test_every_value_comes_back_as_it_went(start: Start, runtime: str, is_ascii: bool) -> None:
    sandbox = start("probe::echo", variables={"AWS_EXECUTION_ENV": runtime})
    event = json.dumps(call("probe::echo", VALUES), ensure_ascii=is_ascii)
    assert repr(sandbox.invoke(event).answer["ok"]) == repr(VALUES)


def test_what_json_does_not_have_is_refused_with_its_place_and_never_sent(start: Start) -> None:
    sandbox = start("probe::do")
    for what, told in {
        "nan": "nan",
        "infinity": "inf",
        "decimal": "a value of type Decimal",
        "set": "a value of type set",
        "bytes": "a value of type bytes",
    }.items():
        error = sandbox.invoke(call("probe::do", {"do": "return", "what": what})).answer["error"]
        assert told in error["message"], error
    assert sandbox.is_running


@pytest.mark.parametrize("number", ["18446744073709551616", "1e400", "-1e400", "1" + "0" * 400])
def test_a_number_that_no_json_reader_keeps_is_refused(start: Start, number: str) -> None:
    sandbox = start("probe::echo")
    event = json.dumps(call("probe::echo", ["NUMBER"])).replace('"NUMBER"', number)
    assert "error" in sandbox.invoke(event).answer
    assert sandbox.is_running


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_lone_surrogate_is_refused_wherever_it_comes_from_and_ends_no_process(start: Start, runtime: str) -> None:
    """The client cannot write it as UTF-8: it would end, and with it everything else that the sandbox does."""
    sandbox = start("probe::do", variables={"AWS_EXECUTION_ENV": runtime})
    for event in (
        call("probe::do", {"do": "fail", "says": "\ud800"}),
        call("probe::do", {"do": "repeat", "unit": "\ud800", "count": 1}),
        call("probe::do", {"do": "\ud800"}),
        call("probe::\ud800", {}),
    ):
        error = sandbox.invoke(event).answer["error"]
        assert error["message"], event
    for refused in ({"iii": {"v": 1, "kind": "\ud800"}}, {"iii": {"v": "\ud800"}}, {"\ud800": 1}):
        assert sandbox.invoke(refused).error["errorMessage"]
    assert sandbox.invoke(call("probe::do", {"do": "repeat", "unit": "x", "count": 1})).answer == {"ok": "x"}
    assert len([line for line in sandbox.log if line["message"] == "call failed"]) == 3
    assert not [line for line in sandbox.others if "Logging error" in line]


def test_a_lone_surrogate_in_a_line_of_the_log_is_an_escape(start: Start) -> None:
    sandbox = start("probe::do")
    assert sandbox.invoke(call("probe::do", {"do": "say", "what": "\ud800"})).answer == {"ok": "said"}
    assert [line["data"] for line in sandbox.log if line["message"] == "as told"] == [{"what": "\ud800"}]
    assert sandbox.others == []


def test_code_that_fails_to_be_imported_with_a_lone_surrogate_is_told(
    start: Start, bundle_with: Callable[[dict[str, str]], Path]
) -> None:
    sandbox = start("probe::do", bundle=bundle_with({"probe/__init__.py": "raise RuntimeError('\\ud800')\n"}))
    assert sandbox.invoke(call("probe::do", {})).error["errorMessage"].endswith("RuntimeError: \\ud800")


@pytest.mark.parametrize(
    "event", [trigger("probe::\ud800", {}), trigger("state::get", {"scope": "\ud800", "key": "x"})]
)
def test_a_request_with_a_lone_surrogate_is_answered(start: Start, event: dict[str, Any]) -> None:
    assert start("control").invoke(event).answer["error"]["code"]


@pytest.mark.parametrize("what", ["header", "name", "raise"])
def test_an_http_answer_with_a_lone_surrogate_is_a_typed_error(start: Start, what: str) -> None:
    sandbox = start("probe::web")
    assert sandbox.invoke(http("/web", f"bad={what}")).answer["statusCode"] == 500
    assert sandbox.others == []


def test_binary_bodies_travel_as_base64(start: Start) -> None:
    sandbox = start("probe::web")
    answer = sandbox.invoke(http("/web", "bytes=1")).answer
    assert (answer["isBase64Encoded"], base64.b64decode(answer["body"])) == (True, b"\x00\xff\x10")
    body = base64.b64encode('{"n":"ü"}'.encode()).decode()
    answer = sandbox.invoke(http("/web", method="POST", body=body, isBase64Encoded=True)).answer
    assert (answer["isBase64Encoded"], json.loads(answer["body"])) == (False, {"got": {"n": "ü"}})


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_answer_up_to_what_lambda_returns_arrives_and_a_larger_one_is_a_typed_error(
    start: Start, runtime: str
) -> None:
    sandbox = start("probe::web", variables={"AWS_EXECUTION_ENV": runtime})
    for unit, size in (("x", LARGEST_RESPONSE - 1000), ("ü", LARGEST_RESPONSE * 3 // 8 - 1000), ('"', 2_000_000)):
        answer = sandbox.invoke(http("/web", f"size={size}&unit={unit}")).answer
        body = answer["body"]
        text = base64.b64decode(body).decode() if answer["isBase64Encoded"] else body
        assert (answer["statusCode"], text == unit * size) == (200, True)
    answer = sandbox.invoke(http("/web", f"size={LARGEST_RESPONSE + 1}")).answer
    assert answer["statusCode"] == 500
    assert json.loads(answer["body"])["error"]["code"] == "RESPONSE_TOO_LARGE"


@pytest.mark.parametrize(("unit", "count"), [("x", 7_000_000), ("\U0001f375", 1_600_000)])
def test_a_result_too_large_for_an_answer_lies_in_the_bucket(
    start: Start, services: Clients, unit: str, count: int
) -> None:
    sandbox = start("probe::do")
    answer = sandbox.invoke(call("probe::do", {"do": "repeat", "unit": unit, "count": count})).answer
    assert answer.keys() == {"ok_blob"}
    blobs = S3BlobStore(services, DEPLOYMENT.bucket_name, SystemClock())
    assert asyncio.run(unpack_answer(answer, blobs)) == unit * count
