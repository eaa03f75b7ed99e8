"""The kill switch: the event source mapping of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from moto import mock_aws

from iii_runtime.adapters.aws.stage_access import StageAccess
from iii_runtime.adapters.aws.switch import QueueSwitch, Switched
from iii_runtime.core.errors import HostError, InvocationError
from iii_runtime.core.queue import QueueSpec
from tests.host.stage import Reply, add_consumer, lambda_service, own_credentials, refusal

QUEUES = (
    QueueSpec(name="default"),
    QueueSpec(name="orders.v2", kind="fifo"),
    QueueSpec(name="single", concurrency=1),
    QueueSpec(name="topic/orders/mail::send", topic="orders", function_id="mail::send"),
    QueueSpec(name="a-name-that-is-far-too-long-for-sqs-" + "x" * 44),
)
CONSUMER = "shop-prod-x-dispatcher"


@pytest.fixture
def access(monkeypatch: pytest.MonkeyPatch) -> Iterator[StageAccess]:
    """A stage whose queues have mappings, in an account that has others too."""
    own_credentials(monkeypatch)
    with mock_aws(config={"lambda": {"use_docker": False}}):
        access = StageAccess("shop", "prod")
        for queue in QUEUES:
            add_consumer(access.deployment, queue)
        add_consumer(replace(access.deployment, app="another"), QueueSpec(name="default"))
        yield access


@pytest.mark.parametrize("queue", [queue.name for queue in QUEUES])
def test_any_queue_is_paused_and_resumed_and_no_other_one_with_it(access: StageAccess, queue: str) -> None:
    switch = QueueSwitch(access)
    running = switch.states()
    paused = switch.pause(queue)
    assert paused == Switched(queue=queue, state="paused", is_changed=True, consumer=CONSUMER)
    changed = {name for name, state in switch.states().items() if state != running[name]}
    assert changed == {name for name in switch.names_on_aws(queue) if name in running}
    assert len(changed) == 1
    assert switch.resume(queue) == Switched(queue=queue, state="running", is_changed=True, consumer=CONSUMER)
    assert switch.states() == running


def test_repeating_it_changes_nothing(access: StageAccess) -> None:
    switch = QueueSwitch(access)
    assert not switch.resume("default").is_changed
    switch.pause("default")
    again = switch.pause("default")
    assert (again.state, again.is_changed) == ("paused", False)


def test_the_states_are_those_of_the_stage_alone(access: StageAccess) -> None:
    names = {access.deployment.queue_name(queue) for queue in QUEUES}
    assert QueueSwitch(access).states() == dict.fromkeys(names, "running")
    assert QueueSwitch(StageAccess("shop", "dev")).states() == {}


def test_a_queue_without_a_mapping_is_not_found(access: StageAccess) -> None:
    with pytest.raises(InvocationError, match="stage 'prod'") as raised:
        QueueSwitch(access).pause("typo")
    assert raised.value.code == "queue_not_found"
    assert "shop-prod-q-typo or shop-prod-q-typo.fifo" in raised.value.message


def test_it_waits_while_aws_is_busy_with_an_earlier_change(
    access: StageAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = iter([refusal(400, "ResourceInUseException", "in use"), refusal(409, "ResourceConflictException", "in use")])
    waited: list[timedelta] = []
    listing = {
        "EventSourceMappings": [{"UUID": "u" * 36, "State": "Enabled", "FunctionArn": "arn:aws:lambda:r:1:function:f"}]
    }

    def update(_name: str, body: dict[str, bool]) -> Reply:
        assert body == {"Enabled": False}
        told = next(busy, None)
        if told is None:
            listing["EventSourceMappings"][0]["State"] = "Disabling"
        return told or (200, {}, {"UUID": "u" * 36, "State": "Disabling"})

    lambda_service(monkeypatch, "ListEventSourceMappings", lambda _name, _body: (200, {}, listing))
    asked = lambda_service(monkeypatch, "UpdateEventSourceMapping", update)
    switched = QueueSwitch(StageAccess("shop", "prod"), wait=waited.append).pause("default")
    assert switched == Switched(queue="default", state="pausing", is_changed=True, consumer="f")
    assert len(asked) == 3
    assert len(waited) == 2


def test_it_gives_up_when_aws_stays_busy(access: StageAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[timedelta] = []
    lambda_service(
        monkeypatch, "UpdateEventSourceMapping", lambda _name, _body: refusal(400, "ResourceInUseException", "in use")
    )
    with pytest.raises(HostError, match="Try again in a minute") as raised:
        QueueSwitch(StageAccess("shop", "prod"), wait=waited.append).pause("default")
    assert raised.value.code == "queue_changing"
    assert sum(waited, timedelta()) == timedelta(seconds=90)


@pytest.mark.parametrize(
    ("operation", "permission"),
    [
        ("ListEventSourceMappings", "lambda:ListEventSourceMappings on *"),
        ("UpdateEventSourceMapping", "lambda:UpdateEventSourceMapping on arn:aws:lambda:"),
    ],
)
def test_a_missing_permission_is_named(
    operation: str, permission: str, access: StageAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    lambda_service(monkeypatch, operation, lambda _name, _body: refusal(403, "AccessDeniedException", "not authorized"))
    with pytest.raises(HostError) as raised:
        QueueSwitch(StageAccess("shop", "prod")).pause("default")
    assert raised.value.code == "aws_access_denied"
    assert permission in raised.value.message
