"""Calls between Lambdas, and requests of the command line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import boto3
import pytest

from iii_runtime.core.call import Call
from iii_runtime.core.errors import IiiError
from iii_runtime.core.message import BlobLink
from iii_runtime.core.payload import Json, render_json
from iii_runtime.core.remote import RemoteCall, RemoteTick, RemoteTrigger, decode_answer, decode_request, encode_request
from iii_runtime.hosts.aws_lambda import control, dispatcher, function
from iii_runtime.hosts.aws_lambda.context import LambdaContext
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.unknown_event import EventUnknownError
from tests.contract.aws_services import DEPLOYMENT
from tests.host import lambda_app
from tests.host.lambda_kit import Context, Stage, again, failures, running_stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    with running_stage() as stage:
        yield stage


def call(stage: Stage, sandbox: Sandbox, payload: Any, **members: Any) -> Any:
    """Send a call to the Lambda of a function and return its answer."""
    function_id = members.pop("function_id", sandbox.environment.function_id)
    request = encode_request(RemoteCall(call=Call(function_id=function_id, payload=payload, **members)))
    return function.handle(sandbox, request, Context(stage.clock))


def forward(stage: Stage, sandbox: Sandbox, **members: Any) -> Any:
    """Forward a message of the queue `batch` for `app::mail` to the dispatcher and return its answer."""
    message: Any = {"function_id": "app::mail", "source": "queue", "queue": "batch", "receipt": "m-1", **members}
    request = RemoteCall(call=Call(payload={"n": 1}, **message), is_forwarded=True)
    return dispatcher.handle(sandbox, encode_request(request), Context(stage.clock))


def ask(stage: Stage, sandbox: Sandbox, function_id: str, payload: Json = None, **members: Json) -> Any:
    """Send a request of the command line and return its answer."""
    request = encode_request(RemoteTrigger(request={"function_id": function_id, "payload": payload, **members}))
    return control.handle(sandbox, request, Context(stage.clock))


def test_a_call_is_answered_with_the_result(stage: Stage) -> None:
    assert call(stage, stage.sandbox("app::mail"), {"n": 1}) == {"ok": {"did": {"n": 1}, "attempt": 1}}
    assert call(stage, stage.sandbox("app::asynchronous"), [1], attempt=2) == {"ok": {"did": [1], "attempt": 2}}


def test_what_a_handler_raises_is_an_answer_and_a_line_in_the_log(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox = stage.sandbox("app::mail")
    trace = "0af7651916cd43dd8448eb211c80319c"
    with caplog.at_level(logging.ERROR, logger="iii_runtime"):
        answer = call(
            stage,
            sandbox,
            {"do": "give up"},
            queue="shared",
            receipt="m-1",
            attempt=2,
            traceparent=f"00-{trace}-b7ad6b7169203331-01",
        )
    error = answer["error"]
    assert (error["code"], error["message"], error["type"], error["final"]) == (
        "invocation_failed",
        "never",
        "NonRetryableError",
        True,
    )
    assert "lambda_app.py" in error["stacktrace"]
    (record,) = caplog.records
    fields = record.__dict__["iii"]
    assert {name: fields[name] for name in ("function_id", "message_receipt_id", "attempt", "trace_id", "queue")} == {
        "function_id": "app::mail",
        "message_receipt_id": "m-1",
        "attempt": 2,
        "trace_id": trace,
        "queue": "shared",
    }
    assert "give up" not in record.getMessage() + str(fields["error"])


def test_a_call_is_bounded_by_its_callers_limit_and_by_the_invocation(stage: Stage) -> None:
    sandbox = stage.sandbox("app::mail")
    answer = call(stage, sandbox, {"do": "hang"}, timeout=timedelta(milliseconds=100))
    assert answer["error"]["code"] == "TIMEOUT"
    request = encode_request(RemoteCall(call=Call(function_id="app::mail", payload={"do": "hang"})))
    late: Any = function.handle(sandbox, request, Context(stage.clock, timedelta(seconds=2.1)))
    assert late["error"]["code"] == "TIMEOUT"


def test_a_condition_that_is_not_met_answers_without_running_the_function(stage: Stage) -> None:
    sandbox = stage.sandbox("app::subscriber")
    subscribed: Any = {"source": "topic", "condition": "app::is-wanted"}
    assert call(stage, sandbox, {"wanted": False}, **subscribed) == {"ok": None}
    assert lambda_app.seen == []
    assert call(stage, sandbox, {"wanted": True}, **subscribed) == {"ok": None}
    assert lambda_app.seen == [{"wanted": True}]


def test_a_condition_that_is_another_function_is_refused_and_neither_runs(stage: Stage) -> None:
    """Else whoever may call a function might have it call any other one that its role may."""
    stage.serve(DEPLOYMENT.function_name("app::mail"), stage.sandbox("app::mail"), function.handle)
    answer = call(stage, stage.sandbox("app::subscriber"), {"n": 1}, source="topic", condition="app::mail")
    assert answer["error"]["code"] == "function_not_found"
    assert "condition 'app::mail'" in answer["error"]["message"]
    assert lambda_app.seen == []


@pytest.mark.parametrize("source", ["queue", "topic", "state", "stream"])
def test_a_result_that_nobody_waits_for_is_not_sent(stage: Stage, source: Any) -> None:
    assert call(stage, stage.sandbox("app::mail"), {"n": 1}, source=source, receipt="m-1") == {"ok": None}
    assert lambda_app.seen == [{"n": 1}]


def test_a_call_for_another_function_is_refused(stage: Stage) -> None:
    answer = call(stage, stage.sandbox("app::mail"), None, function_id="app::void")
    assert answer["error"]["code"] == "function_not_found"
    assert "'app::mail' was asked for 'app::void'" in answer["error"]["message"]


def test_a_large_payload_comes_from_a_blob_and_a_large_result_goes_into_one(stage: Stage) -> None:
    sandbox = stage.sandbox("app::mail")
    text = render_json({"big": "x" * 5_000_000})
    blobs = sandbox.runtime.stores.blobs

    async def store() -> BlobLink:
        from iii_runtime.adapters.aws.linked_text import store_text

        return await store_text(blobs, "b-1", text)

    link = sandbox.run(store, Context(stage.clock))
    request = encode_request(RemoteCall(call=Call(function_id="app::mail"), payload=link))
    answer = decode_answer(function.handle(sandbox, request, Context(stage.clock)))
    assert answer.blob is not None
    assert answer.blob.size > 5_000_000
    assert [len(each["big"]) for each in lambda_app.seen] == [5_000_000]


def test_a_payload_whose_blob_is_gone_is_an_error_of_the_call(stage: Stage) -> None:
    link = BlobLink(key="gone", size=1, sha256="0" * 64)
    request = encode_request(RemoteCall(call=Call(function_id="app::mail"), payload=link))
    answer = decode_answer(function.handle(stage.sandbox("app::mail"), request, Context(stage.clock)))
    assert answer.error is not None
    assert "blob gone is missing" in str(answer.error["message"])
    assert lambda_app.seen == []


def test_a_handler_calls_other_functions_state_and_queues(stage: Stage) -> None:
    caller = stage.sandbox("app::caller")
    stage.serve(DEPLOYMENT.function_name("app::mail"), stage.sandbox("app::mail"), function.handle)
    answer = call(stage, caller, {"function_id": "app::mail", "payload": {"n": 1}})
    assert answer == {"ok": {"did": {"n": 1}, "attempt": 1}}
    put = {"function_id": "state::set", "payload": {"scope": "s", "key": "k", "value": {"n": 2}}}
    assert call(stage, caller, put)["ok"]["new_value"] == {"n": 2}
    enqueue = {"function_id": "app::mail", "payload": 3, "action": {"type": "enqueue", "queue": "mail"}}
    receipt = call(stage, caller, enqueue)["ok"]["messageReceiptId"]
    (record,) = stage.receive("mail")["Records"]
    assert f'"id":"{receipt}"' in record["body"]
    unknown = call(stage, caller, {"function_id": "app::nobody"})
    assert unknown["error"]["code"] == "invocation_failed"
    assert "app::nobody" in unknown["error"]["message"]


def test_the_error_of_a_called_function_reaches_the_calling_handler(stage: Stage) -> None:
    caller = stage.sandbox("app::caller")
    stage.serve(DEPLOYMENT.function_name("app::mail"), stage.sandbox("app::mail"), function.handle)
    answer = call(stage, caller, {"function_id": "app::mail", "payload": {"do": "fail"}})
    assert answer["error"]["type"] == "InvocationError"
    assert "no luck" in answer["error"]["message"]


def test_a_void_call_is_sent_before_the_answer(stage: Stage) -> None:
    assert call(stage, stage.sandbox("app::void"), {"n": 1}) == {"ok": "started"}
    ((name, sent),) = stage.lambdas.started
    assert name == DEPLOYMENT.function_name("app::mail")
    request = decode_request(sent)
    assert isinstance(request, RemoteCall)
    assert (request.call.payload, request.is_forwarded) == ({"n": 1}, False)


def test_a_void_call_that_is_refused_is_logged_and_the_answer_stays(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.lambdas.refusals = ["TooManyRequestsException"]
    with caplog.at_level(logging.ERROR, logger="iii_runtime"):
        assert call(stage, stage.sandbox("app::void"), {"n": 1}) == {"ok": "started"}
    assert [record.getMessage() for record in caplog.records] == ["void call failed"]


def test_a_chain_without_end_is_ended_and_measured(stage: Stage) -> None:
    caller = stage.sandbox("app::caller")
    enqueue = {"function_id": "app::mail", "action": {"type": "enqueue", "queue": "mail"}}
    answer = call(stage, caller, enqueue, hops=100)
    assert "too many" in answer["error"]["message"] or "hop 101" in answer["error"]["message"]
    assert call(stage, caller, {"function_id": "app::mail", "action": {"type": "void"}}, hops=100) == {"ok": None}
    assert stage.lambdas.started == []
    assert stage.meter.counts == {("TooManyHops", "app::mail"): 2, ("FunctionErrors", "app::caller"): 1}


def test_secrets_are_those_of_the_functions_own_environment(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("OTHER", "of the process")
    boto3.client("ssm", region_name=DEPLOYMENT.region).put_parameter(
        Name="/app/test/card-key", Value="k-1", Type="SecureString"
    )
    sandbox = stage.sandbox("app::secretive", secrets={"CARD_KEY": "ssm:/app/test/card-key"})
    assert call(stage, sandbox, "CARD_KEY") == {"ok": "k-1"}
    assert call(stage, sandbox, "OTHER")["error"]["type"] == "SecretError"


def test_the_dispatcher_calls_the_function_of_a_forwarded_call(stage: Stage) -> None:
    sandbox = stage.sandbox()
    stage.serve(DEPLOYMENT.function_name("app::mail"), stage.sandbox("app::mail"), function.handle)
    assert forward(stage, sandbox) == {"ok": None}
    assert lambda_app.seen == [{"n": 1}]
    stage.lambdas.refusals = ["TooManyRequestsException"]
    assert forward(stage, sandbox)["error"]["code"] == "function_busy"


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"queue": None}, "not_forwarded"),
        ({"queue": "nowhere"}, "not_forwarded"),
        ({"queue": "shared"}, "not_forwarded"),
        ({"queue": "mail"}, "not_forwarded"),
        ({"queue": "topic/news/app::subscriber"}, "not_forwarded"),
        ({"receipt": None}, "not_forwarded"),
        ({"source": "direct"}, "not_forwarded"),
        ({"function_id": "app::nobody"}, "function_not_found"),
    ],
    ids=str,
)
def test_the_dispatcher_runs_nothing_that_no_consumer_forwards(
    stage: Stage, members: dict[str, Any], code: str
) -> None:
    stage.serve(DEPLOYMENT.function_name("app::mail"), stage.sandbox("app::mail"), function.handle)
    assert forward(stage, stage.sandbox(), **members)["error"]["code"] == code
    assert lambda_app.seen == []


def test_a_message_that_the_dispatcher_refuses_is_a_dead_letter_after_its_attempts(stage: Stage) -> None:
    def refuse(sandbox: Sandbox, event: Any, context: LambdaContext) -> Any:
        event["iii"]["call"]["q"] = "shared"
        return dispatcher.handle(sandbox, event, context)

    stage.serve(DEPLOYMENT.system_name("dispatcher"), stage.sandbox(), refuse)
    consumer = stage.sandbox("app::batch")
    stage.put("batch", {"n": 1}, "app::mail")
    event = stage.receive("batch")
    assert len(failures(function.handle(consumer, event, Context(stage.clock)))) == 1
    stage.clock.advance(timedelta(minutes=1))
    assert failures(function.handle(consumer, again(event), Context(stage.clock))) == []
    (letter,) = consumer.run(lambda: consumer.runtime.stores.letters.list_letters("batch", 0, 10), Context(stage.clock))
    assert (letter.cause, letter.attempts) == ("failed", 2)
    assert "from queue 'shared'" in letter.error.message


def test_the_command_line_reads_and_writes_state_through_the_same_builtins(stage: Stage) -> None:
    sandbox = stage.sandbox()
    written = ask(stage, sandbox, "state::set", {"scope": "s", "key": "k", "value": 1})
    assert written == {"ok": {"old_value": None, "new_value": 1}}
    assert ask(stage, sandbox, "state::get", {"scope": "s", "key": "k"}) == {"ok": 1}
    error = ask(stage, sandbox, "state::get", {"scope": "s"})["error"]
    assert error["code"] == "GET_ERROR"


def test_the_command_line_calls_enqueues_and_starts_functions(stage: Stage) -> None:
    sandbox = stage.sandbox()
    stage.serve(DEPLOYMENT.function_name("app::mail"), stage.sandbox("app::mail"), function.handle)
    assert ask(stage, sandbox, "app::mail", {"n": 1}) == {"ok": {"did": {"n": 1}, "attempt": 1}}
    enqueued = ask(stage, sandbox, "app::mail", 2, action={"type": "enqueue", "queue": "mail"})
    assert len(enqueued["ok"]["messageReceiptId"]) == 36
    assert ask(stage, sandbox, "app::mail", 3, action={"type": "void"}) == {"ok": None}
    assert len(stage.lambdas.started) == 1
    nowhere = ask(stage, sandbox, "app::mail", 2, action={"type": "enqueue", "queue": "none"})["error"]
    assert (nowhere["code"], nowhere["reason"]) == ("enqueue_error", "queue_not_found")
    assert ask(stage, sandbox, "app::nobody")["error"]["code"] == "function_not_found"
    assert ask(stage, sandbox, "")["error"]["code"] == "request_invalid"


def test_the_command_line_lists_functions_without_their_code(stage: Stage) -> None:
    listed = ask(stage, stage.sandbox(), "engine::functions::list")["ok"]["functions"]
    assert {each["function_id"] for each in listed} == {spec.id for spec in lambda_app.worker.registry.functions()}


@pytest.mark.parametrize("event", [None, {}, {"Records": []}, {"version": "2.0"}])
def test_control_refuses_other_events(stage: Stage, event: Any) -> None:
    with pytest.raises(EventUnknownError, match="trigger requests"):
        control.handle(stage.sandbox(), event, Context(stage.clock))


def test_a_request_for_one_lambda_is_refused_by_the_others(stage: Stage) -> None:
    a_call = encode_request(RemoteCall(call=Call(function_id="app::mail")))
    forwarded = encode_request(RemoteCall(call=Call(function_id="app::mail"), is_forwarded=True))
    tick = encode_request(RemoteTick(job_id="j", time=stage.clock.now()))
    trigger = encode_request(RemoteTrigger(request={}))
    context = Context(stage.clock)
    own, one = stage.sandbox(), stage.sandbox("app::mail")
    refused = [
        (control.handle, own, (a_call, forwarded, tick)),
        (dispatcher.handle, own, (a_call, tick, trigger)),
        (function.handle, one, (forwarded, trigger)),
    ]
    for handle, sandbox, events in refused:
        for event in events:
            with pytest.raises(EventUnknownError):
                handle(sandbox, event, context)


@pytest.mark.parametrize(
    "request_", [{"v": 2, "kind": "call"}, {"v": 1}, {"v": 1, "kind": "x"}, {"v": 1, "kind": "call"}]
)
def test_a_request_that_cannot_be_read_is_an_error_of_the_invocation(stage: Stage, request_: Any) -> None:
    with pytest.raises(IiiError) as caught:
        function.handle(stage.sandbox("app::mail"), {"iii": request_}, Context(stage.clock))
    assert caught.value.code in {"request_unreadable", "call_unreadable"}
