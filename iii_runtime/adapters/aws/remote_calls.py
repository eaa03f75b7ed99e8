"""Calls and results as they cross Lambdas: `core.remote` with what is too large for an Invoke in blobs.

Both sides of a call use it: `pack_call` and `unpack_call`, `pack_result` and `unpack_answer`. A blob of a call is never
removed by the runtime; the lifecycle of the bucket does.
"""

from __future__ import annotations

from dataclasses import replace

from iii_runtime.adapters.aws.linked_text import linked_text, store_text
from iii_runtime.core.call import Call
from iii_runtime.core.payload import Json, decode_stored, render_json
from iii_runtime.core.remote import Answer, RemoteCall, decode_answer, encode_answer, encode_request
from iii_runtime.core.remote_error import error_of
from iii_runtime.ports.blob_store import BlobStore
from iii_runtime.ports.clock import IdSource

SYNC_LIMIT = 4 * 1024 * 1024
"""Largest payload or result inside an Invoke that is waited for, which takes 6 MB."""

EVENT_LIMIT = 200 * 1024
"""Largest payload inside an Invoke that is not waited for, which takes 1 MB."""


async def pack_call(
    call: Call, blobs: BlobStore, ids: IdSource, *, limit: int = SYNC_LIMIT, is_forwarded: bool = False
) -> str:
    """Return the payload of the Invoke for a call.

    Args:
        call: The call.
        blobs: Where a payload above `limit` goes.
        ids: Keys of blobs.
        limit: `SYNC_LIMIT` or `EVENT_LIMIT`.
        is_forwarded: Whether it goes to the dispatcher.

    Raises:
        PayloadTooLargeError: The payload is larger than `MAX_PAYLOAD_BYTES`.
        StoreError: The blob could not be stored; see `failures`.
    """
    text = render_json(call.payload)
    if len(text) <= limit:
        return render_json(encode_request(RemoteCall(call=call, is_forwarded=is_forwarded)), "request")
    link = await store_text(blobs, ids.new_id(), text)
    request = RemoteCall(call=replace(call, payload=None), payload=link, is_forwarded=is_forwarded)
    return render_json(encode_request(request), "request")


async def unpack_call(request: RemoteCall, blobs: BlobStore) -> Call:
    """Return the call of a request, its payload read from its blob.

    Raises:
        StoreError: `blob_missing`, `store_corrupt`; else see `failures`.
    """
    if request.payload is None:
        return request.call
    return replace(request.call, payload=decode_stored(await linked_text(blobs, request.payload)))


async def pack_result(result: Json, blobs: BlobStore, ids: IdSource) -> dict[str, Json]:
    """Return the answer that carries a result.

    Raises:
        PayloadTooLargeError: The result is larger than `MAX_PAYLOAD_BYTES`.
        StoreError: The blob could not be stored; see `failures`.
    """
    text = render_json(result, "result")
    if len(text) <= SYNC_LIMIT:
        return encode_answer(Answer(result=result))
    return encode_answer(Answer(blob=await store_text(blobs, ids.new_id(), text)))


async def unpack_answer(answer: object, blobs: BlobStore) -> Json:
    """Return the result that an answer carries.

    Raises:
        InvocationError: The function failed; see `core.remote.error_of`.
        FunctionBusyError: It was not started.
        PayloadError: `answer_unreadable`.
        StoreError: The blob of the result cannot be read; the function has run.
    """
    parsed = decode_answer(answer)
    if parsed.error is not None:
        raise error_of(parsed.error)
    return parsed.result if parsed.blob is None else decode_stored(await linked_text(blobs, parsed.blob))
