"""The kill switch of a queue: its event source mapping, which takes the messages, is disabled or enabled."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from botocore.exceptions import ClientError

from iii_runtime.adapters.aws.stage_access import StageAccess
from iii_runtime.core.errors import HostError, InvocationError
from iii_runtime.core.queue import QueueSpec

if TYPE_CHECKING:
    from mypy_boto3_lambda.type_defs import EventSourceMappingConfigurationTypeDef

SwitchState: TypeAlias = Literal["running", "starting", "pausing", "paused", "changing"]
"""Whether messages are taken from a queue. AWS needs a while for a change."""

_STATES: Mapping[str, SwitchState] = {
    "Enabled": "running",
    "Enabling": "starting",
    "Creating": "starting",
    "Disabling": "pausing",
    "Disabled": "paused",
}
_ON: frozenset[SwitchState] = frozenset({"running", "starting"})
_OFF: frozenset[SwitchState] = frozenset({"pausing", "paused"})
_BUSY = frozenset({"ResourceInUseException", "ResourceConflictException"})
_PAUSE = timedelta(seconds=2)
_TRIES = 45


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """What a switch has done.

    Attributes:
        queue: Name of the queue.
        state: Whether messages are taken from it now.
        is_changed: False if it was so already.
        consumer: Name of the Lambda that runs its messages.
    """

    queue: str
    state: SwitchState
    is_changed: bool
    consumer: str


class QueueSwitch:
    """Pauses and resumes the queues of a stage. It asks no Lambda, so it works while all concurrency is used up.

    Args:
        access: The stage.
        wait: Waits while AWS is still busy with an earlier change.
    """

    def __init__(self, access: StageAccess, *, wait: Callable[[timedelta], None] | None = None) -> None:
        self._access = access
        self._wait = wait or (lambda pause: time.sleep(pause.total_seconds()))

    def pause(self, queue: str) -> Switched:
        """Let no more messages be taken from a queue. What is in flight ends; the others wait.

        Repeating it does nothing.

        Args:
            queue: Name of the queue, as the listing of the queues has it.

        Raises:
            InvocationError: `queue_not_found`.
            HostError: `queue_changing`: AWS has been busy with an earlier change for 90 seconds. Or see
                `StageAccess.telling`.
        """
        return self._switch(queue, is_on=False)

    def resume(self, queue: str) -> Switched:
        """Let messages be taken from a queue again; see `pause`."""
        return self._switch(queue, is_on=True)

    def states(self) -> Mapping[str, SwitchState]:
        """Return the state of each queue with a consumer, by the queue's name on AWS.

        Raises:
            HostError: See `StageAccess.telling`.
        """
        owned = self._access.deployment.queue_pattern.removesuffix("*")
        found = ((mapping.get("EventSourceArn", ""), mapping) for mapping in self._mappings())
        return {arn.rpartition(":")[2]: _state(mapping) for arn, mapping in found if arn.startswith(owned)}

    def names_on_aws(self, queue: str) -> tuple[str, str]:
        """Return the two names a queue may have on AWS: as a standard queue, and as a FIFO queue."""
        spec, ordered = QueueSpec(name=queue), QueueSpec(name=queue, kind="fifo")
        return self._access.deployment.queue_name(spec), self._access.deployment.queue_name(ordered)

    def _switch(self, queue: str, *, is_on: bool) -> Switched:
        wanted = _ON if is_on else _OFF
        is_changed = False
        for _ in range(_TRIES):
            mappings = self._of(queue)
            pending = [mapping for mapping in mappings if _state(mapping) not in wanted]
            if not pending:
                return Switched(
                    queue=queue, state=_state(mappings[0]), is_changed=is_changed, consumer=_consumer(mappings[0])
                )
            done = [self._set(mapping, is_on=is_on) for mapping in pending]
            is_changed = is_changed or any(done)
            if not all(done):
                self._wait(_PAUSE)
        raise HostError(
            f"queue '{queue}' is still changing: AWS has not finished an earlier change of its event source mapping. "
            "Try again in a minute.",
            code="queue_changing",
        )

    def _set(self, mapping: EventSourceMappingConfigurationTypeDef, *, is_on: bool) -> bool:
        """Switch one mapping; False if AWS is busy with an earlier change."""
        with self._access.telling("lambda:UpdateEventSourceMapping", mapping.get("EventSourceMappingArn", "*")):
            try:
                self._access.managing.update_event_source_mapping(UUID=mapping.get("UUID", ""), Enabled=is_on)
            except ClientError as error:
                if error.response["Error"].get("Code") in _BUSY:
                    return False
                raise
        return True

    def _of(self, queue: str) -> Sequence[EventSourceMappingConfigurationTypeDef]:
        names = self.names_on_aws(queue)
        for name in names:
            found = self._mappings(self._access.deployment.queue_arn(name))
            if found:
                return found
        raise InvocationError(
            "queue_not_found",
            f"Queue '{queue}' not found in stage '{self._access.stage}' of app '{self._access.app}' in "
            f"{self._access.region}: no event source mapping takes messages from {' or '.join(names)}.",
        )

    def _mappings(self, source: str | None = None) -> Sequence[EventSourceMappingConfigurationTypeDef]:
        """Return the event source mappings of one queue, or of the whole account in this region."""
        with self._access.telling("lambda:ListEventSourceMappings"):
            pages = self._access.managing.get_paginator("list_event_source_mappings")
            found = pages.paginate() if source is None else pages.paginate(EventSourceArn=source)
            return [mapping for page in found for mapping in page["EventSourceMappings"]]


def _state(mapping: EventSourceMappingConfigurationTypeDef) -> SwitchState:
    return _STATES.get(mapping.get("State", ""), "changing")


def _consumer(mapping: EventSourceMappingConfigurationTypeDef) -> str:
    # arn:aws:lambda:<region>:<account>:function:<name>, and maybe a version
    return (mapping.get("FunctionArn", "").split(":") + [""] * 7)[6]
