"""Reads the body of a request within limits of size and time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from aiohttp import web

from iii_runtime.core.http import BadRequestError, BodyTooLargeError, HttpError

BODY_TIMEOUT = timedelta(seconds=30)


class BodyTimeoutError(HttpError):
    """The body did not arrive in time."""

    code = "REQUEST_TIMEOUT"
    status = 408


async def read_body(request: web.BaseRequest, *, limit_bytes: int, timeout: timedelta) -> bytes:
    """Return the raw body. After an error the rest of it is still on the wire, so the connection has to close.

    Args:
        request: Nothing of its body is read yet.
        limit_bytes: Largest body; no more than this is ever held, whether the client declares a length or not.
        timeout: For the whole body.

    Raises:
        BodyTooLargeError: Larger than the limit; if the client declared so, nothing was read.
        BodyTimeoutError: Not complete within the timeout.
        BadRequestError: Its framing is broken, or the client went away.
    """
    if (request.content_length or 0) > limit_bytes:
        raise _too_large(limit_bytes)
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            await _continue(request)
            return await _collect(request, limit_bytes)
    except TimeoutError as error:
        raise BodyTimeoutError(f"the body did not arrive within {timeout.total_seconds():g} s") from error
    except (web.RequestPayloadError, ConnectionError) as error:
        raise BadRequestError("the body ended early or is not framed as http demands") from error


async def _continue(request: web.BaseRequest) -> None:
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # aiohttp takes a writer that has written for one whose answer has begun.
        request.writer.output_size = 0


async def _collect(request: web.BaseRequest, limit_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(limit_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is larger than {limit_bytes:,} bytes; send a reference to the data instead")
