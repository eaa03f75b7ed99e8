"""Answers to requests of other hosts of the app, see `core.remote`."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any

from iii_runtime.adapters.aws.remote_calls import pack_result, unpack_call
from iii_runtime.core.call import Call
from iii_runtime.core.errors import IiiError, InvocationError
from iii_runtime.core.payload import Json
from iii_runtime.core.remote import Answer, RemoteCall, encode_answer
from iii_runtime.core.remote_error import describe_error
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox

_log = logging.getLogger("iii_runtime.host")


async def call_of(sandbox: Sandbox, request: RemoteCall) -> Call:
    """Return the call of a request, its payload read from its blob.

    Raises:
        StoreError: The blob is missing or cannot be read.
    """
    return await unpack_call(request, sandbox.runtime.stores.blobs)


async def answer_to(sandbox: Sandbox, work: Coroutine[Any, Any, Json]) -> Json:
    """Return the answer that carries the result of `work`, in a blob if it is large, or its error."""
    stores = sandbox.runtime.stores
    try:
        return await pack_result(await work, stores.blobs, stores.ids)
    except InvocationError as error:
        return encode_answer(Answer(error=describe_error(error)))
    except IiiError as error:
        _log.error("the request failed", extra={"iii": {"code": error.code, "error": error.message}})
        return encode_answer(Answer(error=describe_error(error)))
