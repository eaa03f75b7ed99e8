"""A redrive from the AWS console: without a destination SQS takes back what it has moved itself, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from iii_runtime import Queue, Worker, register_worker
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.payload import Json
from tests.aws.calls import Call
from tests.aws.invocations import Invocation
from tests.aws.overseers import Meddling
from tests.aws.simulator import Simulator
from tests.aws.sqs_backend import SourceUnknownError

CONFIG = Config(queues={"mail": QueueConfig(name="mail", max_retries=1)})
WATCHED = timedelta(minutes=5)
"""By then the tick has looked at the dead-letter queue."""


class Mailer:
    """A function that fails until it is mended."""

    def __init__(self) -> None:
        self.is_mended = False
        self.sent: list[Json] = []

    def worker(self) -> Worker:
        worker = register_worker(worker_name="app")

        @worker.function("app::mail", triggers=[Queue("mail")])
        def mail(data: Json) -> None:
            if not self.is_mended:
                raise ValueError("no such address")
            self.sent.append(data)

        return worker


@pytest.fixture
def mailer() -> Mailer:
    return Mailer()


@pytest.fixture
def stage(mailer: Mailer) -> Iterator[Simulator]:
    with Simulator([mailer.worker()], CONFIG) as simulator:
        yield simulator


def send(stage: Simulator, payload: Json) -> None:
    stage.trigger("app::mail", payload, {"type": "enqueue", "queue": "mail"})


def bury(stage: Simulator, payload: Json) -> None:
    """Let the runtime make a letter of a message."""
    send(stage, payload)
    stage.settle()


def bury_natively(stage: Simulator, payload: Json) -> None:
    """Let SQS make a letter of a message, whose consumer dies each time it is about to tell how it went."""

    def kill_consumer(invocation: Invocation, _call: Call) -> None:
        if invocation.function.endswith("--mail"):
            invocation.kill()

    send(stage, payload)
    stage.lambdas.overseer = Meddling(kill_consumer)
    stage.settle()
    stage.lambdas.overseer = None


def payloads(bodies: list[str]) -> list[Json]:
    return [json.loads(body)["p"] for body in bodies]


def test_a_letter_of_the_runtime_goes_back_with_its_queue_as_destination(stage: Simulator, mailer: Mailer) -> None:
    bury(stage, "a")
    mailer.is_mended = True
    assert stage.console_redrive("mail") == 1
    stage.settle()
    assert (mailer.sent, stage.letters("mail")) == (["a"], [])


def test_a_letter_of_the_runtime_has_no_source_and_stays(stage: Simulator, mailer: Mailer) -> None:
    bury(stage, "a")
    mailer.is_mended = True
    with pytest.raises(SourceUnknownError, match="CouldNotDetermineMessageSource: shop-dev-d-mail"):
        stage.console_redrive("mail", to_sources=True)
    stage.settle()
    assert (mailer.sent, payloads(stage.letters("mail"))) == ([], ["a"])


def test_a_letter_of_sqs_goes_back_to_its_source_by_itself(stage: Simulator, mailer: Mailer) -> None:
    bury_natively(stage, "a")
    assert payloads(stage.letters("mail")) == ["a"]
    mailer.is_mended = True
    assert stage.console_redrive("mail", to_sources=True) == 1
    stage.settle()
    assert (mailer.sent, stage.letters("mail")) == (["a"], [])


def test_a_task_ends_at_the_first_letter_without_a_source(stage: Simulator, mailer: Mailer) -> None:
    bury_natively(stage, "a")
    bury(stage, "b")
    mailer.is_mended = True
    with pytest.raises(SourceUnknownError):
        stage.console_redrive("mail", to_sources=True)
    stage.settle()
    assert (mailer.sent, payloads(stage.letters("mail"))) == (["a"], ["b"])


def test_once_a_letter_of_sqs_is_listed_it_is_one_of_the_runtime(stage: Simulator, mailer: Mailer) -> None:
    bury_natively(stage, "a")
    stage.advance(WATCHED)
    mailer.is_mended = True
    with pytest.raises(SourceUnknownError):
        stage.console_redrive("mail", to_sources=True)
    assert stage.console_redrive("mail") == 1
    stage.settle()
    assert (mailer.sent, stage.letters("mail")) == (["a"], [])
