"""What the services say when they refuse, and what is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ReadTimeoutError,
)
from botocore.stub import Stubber

from iii_runtime.adapters.aws.clients import CONNECT_TIMEOUT_S, READ_TIMEOUT_S
from iii_runtime.adapters.aws.failures import (
    ATTEMPTS,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PATIENCE,
    Failure,
    ServiceError,
    classify,
    with_retries,
)
from iii_runtime.core.errors import StoreError
from tests.contract.aws_services import HastyClock, fake_clients, running_services

KEY: Any = {"pk": {"S": "k"}, "sk": {"S": "@"}}


class Answers:
    """DynamoDB, answering `GetItem` and `TransactWriteItems` with what a test has put in."""

    def __init__(self) -> None:
        self.client = fake_clients().dynamodb
        self.stub = Stubber(self.client)
        self.sent = 0

    def refuse(self, code: str, message: str = "no", *, status: int = 400) -> None:
        self.stub.add_client_error("get_item", code, message, http_status_code=status)

    def accept(self) -> None:
        self.stub.add_response("get_item", {"Item": KEY})

    def cancel(self, *reasons: str | None) -> None:
        self.stub.add_client_error(
            "transact_write_items",
            "TransactionCanceledException",
            "Transaction cancelled",
            modeled_fields={"CancellationReasons": [{"Code": reason or "None"} for reason in reasons]},
        )

    def get(self) -> object:
        self.sent += 1
        return self.client.get_item(TableName="t", Key=KEY)

    def transact(self) -> object:
        self.sent += 1
        return self.client.transact_write_items(TransactItems=[{"Delete": {"TableName": "t", "Key": KEY}}])


@pytest.fixture
def answers() -> Iterator[Answers]:
    answers = Answers()
    with answers.stub:
        yield answers
    answers.stub.assert_no_pending_responses()


@pytest.fixture
def clock() -> HastyClock:
    return HastyClock()


def failure_of(operation: Any) -> Failure:
    with pytest.raises((BotoCoreError, ClientError)) as caught:
        operation()
    assert isinstance(caught.value, BotoCoreError | ClientError)
    return classify(caught.value)


@pytest.mark.parametrize(
    ("code", "status", "kind", "store_code"),
    [
        ("ProvisionedThroughputExceededException", 400, "retryable", "store_throttled"),
        ("ThrottlingException", 400, "retryable", "store_throttled"),
        ("RequestLimitExceeded", 400, "retryable", "store_throttled"),
        ("SlowDown", 503, "retryable", "store_throttled"),
        ("TooManyRequestsException", 429, "retryable", "store_throttled"),
        ("SomethingNew", 429, "retryable", "store_throttled"),
        ("InternalServerError", 500, "retryable", "store_unavailable"),
        ("SomethingNew", 503, "retryable", "store_unavailable"),
        ("RequestTimeout", 400, "retryable", "store_unavailable"),
        ("ConditionalCheckFailedException", 400, "conflict", "store_conflict"),
        ("TransactionConflictException", 400, "conflict", "store_conflict"),
        ("AccessDeniedException", 400, "permanent", "store_denied"),
        ("ExpiredTokenException", 400, "permanent", "store_denied"),
        ("UnrecognizedClientException", 400, "permanent", "store_denied"),
        ("403", 403, "permanent", "store_denied"),
        ("ResourceNotFoundException", 400, "permanent", "store_missing"),
        ("AWS.SimpleQueueService.NonExistentQueue", 400, "permanent", "store_missing"),
        ("NoSuchBucket", 404, "permanent", "store_missing"),
        ("GoneException", 410, "permanent", "store_missing"),
        ("RequestTooLargeException", 413, "permanent", "store_item_too_large"),
        ("PayloadTooLargeException", 413, "permanent", "store_item_too_large"),
        ("EntityTooLarge", 400, "permanent", "store_item_too_large"),
        ("ValidationException", 400, "permanent", "store_unavailable"),
    ],
)
def test_a_refusal_is_sorted_by_its_code_and_status(
    answers: Answers, code: str, status: int, kind: str, store_code: str
) -> None:
    answers.refuse(code, status=status)
    failure = failure_of(answers.get)
    assert (failure.kind, failure.code, failure.message) == (
        kind,
        store_code,
        f"GetItem: {code.removeprefix('AWS.SimpleQueueService.')}: no",
    )


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (EndpointConnectionError(endpoint_url="https://x"), "retryable", "store_unavailable"),
        (ConnectTimeoutError(endpoint_url="https://x"), "retryable", "store_unavailable"),
        (ReadTimeoutError(endpoint_url="https://x"), "retryable", "store_unavailable"),
        (NoCredentialsError(), "permanent", "store_denied"),
        (PartialCredentialsError(provider="env", cred_var="key"), "permanent", "store_denied"),
        (ParamValidationError(report="wrong"), "permanent", "store_unavailable"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_request_without_an_answer_is_sorted_by_its_error(error: BotoCoreError, kind: str, code: str) -> None:
    failure = classify(error)
    assert (failure.kind, failure.code) == (kind, code)


@pytest.mark.parametrize(
    ("reasons", "kind", "code", "is_transient"),
    [
        ([None, "ConditionalCheckFailed"], "conflict", "store_conflict", False),
        (["TransactionConflict", None], "conflict", "store_conflict", True),
        (["TransactionConflict", "ConditionalCheckFailed"], "conflict", "store_conflict", False),
        (["ThrottlingError", "TransactionConflict"], "retryable", "store_throttled", True),
        (["ConditionalCheckFailed", "ProvisionedThroughputExceeded"], "retryable", "store_throttled", True),
        (["ThrottlingError", "ValidationError"], "permanent", "store_unavailable", False),
        (["ItemCollectionSizeLimitExceeded", "ThrottlingError"], "permanent", "store_item_too_large", False),
        (["AccessDenied", "ConditionalCheckFailed"], "permanent", "store_denied", False),
    ],
)
def test_a_cancelled_transaction_is_sorted_by_the_reason_that_counts(
    answers: Answers, reasons: list[str | None], kind: str, code: str, is_transient: bool
) -> None:
    answers.cancel(*reasons)
    failure = failure_of(answers.transact)
    assert (failure.kind, failure.code, failure.is_transient) == (kind, code, is_transient)


def test_a_cancelled_transaction_of_the_emulated_service_is_a_conflict() -> None:
    with running_services() as services:
        name = services.deployment.table_name
        failure = failure_of(
            lambda: services.clients.dynamodb.transact_write_items(
                TransactItems=[
                    {"Delete": {"TableName": name, "Key": KEY, "ConditionExpression": "attribute_exists(pk)"}}
                ]
            )
        )
    assert (failure.kind, failure.aws_code) == ("conflict", "ConditionalCheckFailed")


class TestLimits:
    """Each limit of a service is one error that says so."""

    def test_an_item_above_400_kilobytes(self) -> None:
        with running_services() as services:
            item = {**KEY, "v": {"S": "x" * 410_000}}
            put = services.clients.dynamodb.put_item
            assert failure_of(lambda: put(TableName=services.deployment.table_name, Item=item)).code == (
                "store_item_too_large"
            )

    @pytest.mark.parametrize(("pk", "sk"), [("k" * 2049, "@"), ("k", "s" * 1025)])
    def test_a_key_that_is_too_long(self, pk: str, sk: str) -> None:
        with running_services() as services:
            item: Any = {"pk": {"S": pk}, "sk": {"S": sk}}
            put = services.clients.dynamodb.put_item
            assert failure_of(lambda: put(TableName=services.deployment.table_name, Item=item)).code == (
                "store_item_too_large"
            )

    def test_a_message_above_one_mebibyte(self) -> None:
        with running_services() as services:
            url = services.clients.sqs.create_queue(QueueName="q")["QueueUrl"]
            send = services.clients.sqs.send_message
            assert failure_of(lambda: send(QueueUrl=url, MessageBody="x" * 1_048_577)).code == "store_item_too_large"

    def test_a_batch_above_one_mebibyte(self) -> None:
        with running_services() as services:
            url = services.clients.sqs.create_queue(QueueName="q")["QueueUrl"]
            entries: Any = [{"Id": str(number), "MessageBody": "x" * 600_000} for number in range(2)]
            send = services.clients.sqs.send_message_batch
            assert failure_of(lambda: send(QueueUrl=url, Entries=entries)).code == "store_item_too_large"

    def test_a_notification_above_256_kibibytes(self) -> None:
        with running_services() as services:
            arn = services.clients.sns.create_topic(Name="t")["TopicArn"]
            publish = services.clients.sns.publish
            assert failure_of(lambda: publish(TopicArn=arn, Message="x" * 262_145)).code == "store_item_too_large"

    def test_a_frame_above_128_kibibytes(self) -> None:
        client = fake_clients().websocket("https://api.example/prod")
        with Stubber(client) as stub:
            stub.add_client_error("post_to_connection", "PayloadTooLargeException", http_status_code=413)
            failure = failure_of(lambda: client.post_to_connection(ConnectionId="c", Data=b"x"))
        assert failure.code == "store_item_too_large"


async def test_a_throttled_request_is_sent_again_after_a_random_pause(answers: Answers, clock: HastyClock) -> None:
    for _ in range(3):
        answers.refuse("ThrottlingException")
    answers.accept()
    jitter = iter([0.0, 0.5, 1.0])
    await with_retries(answers.get, clock=clock, where="table t", jitter=lambda: next(jitter))
    assert clock.pauses == [timedelta(0), FIRST_PAUSE, FIRST_PAUSE * 4]
    assert answers.sent == 4


async def test_pauses_do_not_grow_without_end(answers: Answers, clock: HastyClock) -> None:
    for _ in range(10):
        answers.refuse("InternalServerError", status=500)
    answers.accept()
    await with_retries(
        answers.get, clock=clock, where="table t", attempts=11, patience=timedelta(minutes=1), jitter=lambda: 1.0
    )
    assert max(clock.pauses) == clock.pauses[-1] == LONGEST_PAUSE


async def test_transaction_conflicts_are_sent_again_and_end_as_a_conflict(answers: Answers, clock: HastyClock) -> None:
    for _ in range(ATTEMPTS):
        answers.cancel("TransactionConflict")
    with pytest.raises(StoreError, match="others write the same item") as caught:
        await with_retries(answers.transact, clock=clock, where="table t")
    assert caught.value.code == "store_conflict"
    assert answers.sent == ATTEMPTS == len(clock.pauses) + 1


async def test_a_condition_that_does_not_hold_is_an_answer_and_not_repeated(
    answers: Answers, clock: HastyClock
) -> None:
    answers.refuse("ConditionalCheckFailedException")
    with pytest.raises(ClientError):
        await with_retries(answers.get, clock=clock, where="table t")
    assert (answers.sent, clock.pauses) == (1, [])


async def test_a_final_refusal_is_not_repeated_and_says_where_and_what_to_do(
    answers: Answers, clock: HastyClock
) -> None:
    answers.refuse("ExpiredTokenException", "The security token included in the request is expired")
    with pytest.raises(ServiceError) as caught:
        await with_retries(answers.get, clock=clock, where="table t")
    assert caught.value.code == "store_denied"
    assert caught.value.message == (
        "table t: GetItem: ExpiredTokenException: The security token included in the request is expired: the "
        "credentials have expired or do not allow it. Sign in again, or grant the action to the role."
    )
    assert (answers.sent, clock.pauses) == (1, [])


async def test_a_service_that_stays_unwell_is_given_up(answers: Answers, clock: HastyClock) -> None:
    for _ in range(ATTEMPTS):
        answers.refuse("ProvisionedThroughputExceededException")
    with pytest.raises(StoreError) as caught:
        await with_retries(answers.get, clock=clock, where="table t")
    assert caught.value.code == "store_throttled"


async def test_a_service_that_hangs_is_given_up_in_time(clock: HastyClock) -> None:
    """Each attempt waits for its own time-out; six of them would wait longer than a function may run."""
    begun = clock.now()
    sent = []

    def hang() -> None:
        sent.append(clock.now())
        clock.advance(timedelta(seconds=READ_TIMEOUT_S))
        raise ReadTimeoutError(endpoint_url="https://dynamodb")

    with pytest.raises(ServiceError) as caught:
        await with_retries(hang, clock=clock, where="table t")
    assert caught.value.code == "store_unavailable"
    assert 1 < len(sent) < ATTEMPTS
    assert clock.now() - begun < timedelta(seconds=10)
    assert PATIENCE + timedelta(seconds=CONNECT_TIMEOUT_S + READ_TIMEOUT_S) <= timedelta(seconds=10)


@pytest.mark.parametrize(
    ("codes", "may_be_done"),
    [
        (["AccessDeniedException"], False),
        (["ThrottlingException", "AccessDeniedException"], False),
        (["InternalServerError", "AccessDeniedException"], True),
    ],
)
async def test_a_failure_says_whether_the_request_may_be_done(
    answers: Answers, clock: HastyClock, codes: list[str], *, may_be_done: bool
) -> None:
    for code in codes:
        answers.refuse(code)
    with pytest.raises(ServiceError) as caught:
        await with_retries(answers.get, clock=clock, where="table t")
    assert caught.value.may_be_done is may_be_done


async def test_a_mistake_of_the_caller_is_not_taken_for_the_services(clock: HastyClock) -> None:
    with pytest.raises(ZeroDivisionError):
        await with_retries(lambda: 1 / 0, clock=clock, where="table t")
