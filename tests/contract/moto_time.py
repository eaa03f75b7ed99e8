"""SQS in memory under the clock of a test, and with two things that moto leaves out."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest
from moto.sqs import models

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.plan.names import Deployment
from iii_runtime.testing.clock import SkipClock

_SOURCE = "DeadLetterQueueSourceArn"


def let_sqs_follow(monkeypatch: pytest.MonkeyPatch, clock: SkipClock, clients: Clients, deployment: Deployment) -> None:
    """Let SQS tell the time of a test, and say which letters it has moved by itself.

    Moto takes a message for visible only when its time-out has passed, not at the moment it ends. So each look at the
    clock is a microsecond after the one before. And moto counts the 12 hours of a visibility from the send of a
    message; SQS counts them from its receive.
    """
    looks = itertools.count(1)

    def now_ms(_: object = None) -> float:
        return clock.now_ms() + next(looks) / 1000

    monkeypatch.setattr(models, "unix_time_millis", now_ms)
    monkeypatch.setattr(models, "unix_time", lambda _=None: now_ms() / 1000)
    _mark_native_moves(monkeypatch, clients, deployment)
    _count_from_the_receive(monkeypatch, now_ms)


def _mark_native_moves(monkeypatch: pytest.MonkeyPatch, clients: Clients, deployment: Deployment) -> None:
    add = models.Queue.add_message
    moved: set[str] = set()

    def add_message(queue: models.Queue, message: models.Message) -> None:
        if message.approximate_receive_count:  # what is sent was never received
            moved.add(message.id)
        add(queue, message)

    def name_source(parsed: dict[str, Any], **_: object) -> None:
        for message in parsed.get("Messages", []):
            if message["MessageId"] in moved:
                message["Attributes"][_SOURCE] = deployment.queue_arn("source")

    monkeypatch.setattr(models.Queue, "add_message", add_message)
    clients.sqs.meta.events.register("after-call.sqs.ReceiveMessage", name_source)


def _count_from_the_receive(monkeypatch: pytest.MonkeyPatch, now_ms: Callable[[], float]) -> None:
    change = models.SQSBackend.change_message_visibility
    received = models.Message.mark_received
    receives: dict[str, float] = {}

    def mark_received(message: models.Message, visibility_timeout: int | None = None) -> None:
        received(message, visibility_timeout)
        receives[message.id] = now_ms()

    def change_visibility(
        backend: models.SQSBackend, queue_name: str, receipt_handle: str, visibility_timeout: int
    ) -> None:
        for message in cast("list[Any]", backend.get_queue(queue_name)._messages):
            if message.had_receipt_handle(receipt_handle):
                sent, message.sent_timestamp = message.sent_timestamp, receives.get(message.id, 0)
                try:
                    change(backend, queue_name, receipt_handle, visibility_timeout)
                finally:
                    message.sent_timestamp = sent
                return
        change(backend, queue_name, receipt_handle, visibility_timeout)

    monkeypatch.setattr(models.Message, "mark_received", mark_received)
    monkeypatch.setattr(models.SQSBackend, "change_message_visibility", change_visibility)
