"""Calls functions of a deployed stage from outside, through the Lambda that carries out requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from iii_runtime.adapters.aws.blob_store import S3BlobStore
from iii_runtime.adapters.aws.stage_access import StageAccess, answer_unreadable
from iii_runtime.core.errors import FunctionBusyError, InvocationError
from iii_runtime.core.message import BlobLink
from iii_runtime.core.payload import Json, PayloadError, decode_stored, encode_json
from iii_runtime.core.remote import Answer, RemoteTrigger, decode_answer, encode_request
from iii_runtime.core.remote_error import error_of
from iii_runtime.core.trigger_request import TriggerRequest, parse_trigger_request, render_trigger_request
from iii_runtime.ports.clock import Clock

LARGEST_REQUEST = 6 * 1024 * 1024
"""Bytes of a request: what an Invoke takes. Answers may be larger, they travel through the bucket."""


class StageCalls:
    """Speaks to one stage.

    Args:
        access: The stage.
        clock: What pauses are waited on.
    """

    def __init__(self, access: StageAccess, clock: Clock) -> None:
        self._access = access
        self._clock = clock

    def call(self, request: TriggerRequest | Mapping[str, Any]) -> Json:
        """Carry out a trigger request in the stage; blocks until it is answered, 15 minutes at most.

        It is sent once: a function may have run although no answer came.

        Raises:
            InvocationError: As the engine there raised it; an `EnqueueError` likewise. `payload_too_large`: the
                request is larger than `LARGEST_REQUEST`, and was not sent.
            HostError: See `StageAccess.invoke`.
            StoreError: The result lies in the bucket, and cannot be read.
        """
        parsed = parse_trigger_request(request)
        answer = self._invoke(_rendered(parsed))
        if answer.error is not None:
            raise _error(answer.error, parsed)
        return answer.result if answer.blob is None else self._follow(answer.blob)

    def _invoke(self, event: bytes) -> Answer:
        name = self._access.names.system_name("control")
        told = self._access.invoke(name, event)
        try:
            return decode_answer(told)
        except PayloadError as error:
            raise answer_unreadable(name, error) from error

    def _follow(self, link: BlobLink) -> Json:
        with self._access.telling("s3:GetObject"):
            blobs = S3BlobStore(self._access.clients, self._access.deployment.bucket_name, self._clock)
            return decode_stored(asyncio.run(blobs.get(link.key)))


def _rendered(request: TriggerRequest) -> bytes:
    try:
        event = encode_json(encode_request(RemoteTrigger(request=render_trigger_request(request))), "request").encode(
            "ascii"
        )
    except PayloadError as error:
        raise InvocationError(error.code, error.message, request.function_id) from error
    if len(event) > LARGEST_REQUEST:
        raise InvocationError(
            "payload_too_large",
            f"the request is {len(event):,} bytes; a stage takes {LARGEST_REQUEST:,} from the command line. "
            "Store the data elsewhere and pass a reference.",
            request.function_id,
        )
    return event


def _error(told: Mapping[str, Json], request: TriggerRequest) -> InvocationError:
    error = error_of(told)
    if isinstance(error, FunctionBusyError):
        return InvocationError(error.code, error.message, request.function_id)
    error.function_id = error.function_id or request.function_id
    return error
