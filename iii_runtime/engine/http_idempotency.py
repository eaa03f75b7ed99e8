"""One answer for each `Idempotency-Key`: a repetition gets the answer of the first request, and runs nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

from iii_runtime.core.api_types import Caller, IamCaller
from iii_runtime.core.errors import StoreError
from iii_runtime.core.http import HttpReply, error_reply, unavailable
from iii_runtime.engine.runtime import Runtime
from iii_runtime.ports.response_store import Begun, InProgress, Mismatch, StoredResponse

_log = logging.getLogger("iii_runtime.http")
_MAX_KEY_CHARACTERS = 256
_FINISH_TRIES = 600
_FINISH_PAUSE = timedelta(seconds=1)
_RETRY_AFTER_S = 1
_PASSING = frozenset({"store_throttled", "store_unavailable", "store_locked", "store_conflict", "store_full"})
"""What a store says for a while; the same request may be accepted later."""


class IdempotentAnswers:
    """Reserves keys, and stores the answers under them.

    Guarantee: of the requests with one key one runs at a time, and none once an answer was stored, for 24 hours. An
    answer that cannot be stored reaches its caller nevertheless; until it is stored, a repetition is refused.

    Args:
        runtime: The engine.
        holder: Identity of this host's life: reservations by an earlier life are taken over.
    """

    def __init__(self, runtime: Runtime, holder: str) -> None:
        self._runtime = runtime
        self._holder = holder
        self._unstored: set[asyncio.Task[None]] = set()

    async def answer(
        self, key: str, scope: str, fingerprint: str, run: Callable[[], Awaitable[HttpReply]], error_id: str
    ) -> HttpReply:
        """Return the answer stored under a key; if there is none, run the request and store its answer.

        Args:
            key: As the client sent it.
            scope: Within which keys are compared, see `key_scope`.
            fingerprint: Tells other requests with the same key from a repetition.
            run: Carries the request out. What it raises is stored nowhere, so it is not to raise.
            error_id: Names this request in an error reply and in the log.

        Raises:
            StoreError: The key could not be reserved, for a reason that stays; nothing ran. One that passes is a 503.
        """
        if not 1 <= len(key) <= _MAX_KEY_CHARACTERS:
            message = f"Idempotency-Key must have 1 to {_MAX_KEY_CHARACTERS} characters"
            return error_reply(400, "IDEMPOTENCY_KEY_INVALID", message, error_id)
        scoped = f"{scope} {key}"
        try:
            reservation = await self._runtime.stores.responses.begin(scoped, fingerprint, self._holder)
        except StoreError as error:
            if error.code not in _PASSING:
                raise
            fields = {"error": error.message, "code": error.code, "error_id": error_id}
            _log.error("key not reserved", extra={"iii": fields})
            return unavailable("the Idempotency-Key cannot be reserved at the moment", _RETRY_AFTER_S, error_id)
        if isinstance(reservation, StoredResponse):
            headers = (*reservation.headers, ("Idempotency-Replayed", "true"))
            return HttpReply(status=reservation.status, headers=headers, body=reservation.body)
        if isinstance(reservation, Mismatch):
            message = "this Idempotency-Key was used for another request; use a new key for a new request"
            return error_reply(422, "IDEMPOTENCY_KEY_REUSED", message, error_id)
        if isinstance(reservation, InProgress):
            message = "the first request with this Idempotency-Key is still running; try again later"
            return error_reply(409, "IDEMPOTENCY_KEY_IN_USE", message, error_id)
        assert isinstance(reservation, Begun)  # noqa: S101 - closes the union
        reply = await run()
        response = StoredResponse(status=reply.status, headers=reply.headers, body=reply.body)
        if not await self._finish(scoped, response, error_id):
            # The function has run, so its caller is answered. Until the answer is stored, a repetition gets 409.
            self._start(self._finish_later(scoped, response, error_id))
        return reply

    async def _finish(self, key: str, response: StoredResponse, error_id: str) -> bool:
        try:
            await self._runtime.stores.responses.finish(key, response)
        except StoreError as error:
            _log.error("response not stored", extra={"iii": {"error": error.message, "error_id": error_id}})
            return False
        return True

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if self._runtime.invoker.remaining() is not None:
            self._runtime.spawn(work)  # this host goes to sleep after each request, and waits for such work before
            return
        task = asyncio.create_task(work)
        self._unstored.add(task)
        task.add_done_callback(self._unstored.discard)

    async def _finish_later(self, key: str, response: StoredResponse, error_id: str) -> None:
        """Try again for ten minutes, or as long as this host may go on.

        A host that ends after each request waits for this before it answers. It gives up in time for the answer:
        whoever has that does not repeat the request, and would be sure to repeat it without.
        """
        clock, remaining = self._runtime.stores.clock, self._runtime.invoker.remaining
        for _ in range(_FINISH_TRIES):
            left = remaining()
            if left is not None and left <= _FINISH_PAUSE:
                break
            await clock.sleep_until(clock.now() + _FINISH_PAUSE)
            if await self._finish(key, response, error_id):
                return
        _log.error("response given up; a repetition may run again", extra={"iii": {"error_id": error_id}})


def key_scope(route: str, caller: Caller | None) -> str:
    """Return within which keys are compared: the route, and whoever calls it, so that nobody gets another's answer.

    A caller keeps their keys when their token is renewed. A token without `sub` names nobody; its keys are its own.

    Args:
        route: Method and pattern.
        caller: Who sent the request; None for all that nobody has asked who they are.
    """
    if caller is None:
        return route
    identity: list[object]
    if isinstance(caller, IamCaller):
        identity = ["iam", caller.account, caller.arn, caller.user_id, caller.cognito_identity]
    elif "sub" in caller.claims:
        identity = ["jwt", caller.claims.get("iss"), caller.claims["sub"]]
    else:
        identity = ["jwt", dict(caller.claims)]
    # Hashed, as names and addresses of people are nothing to keep with an answer. No method looks like a hash.
    return f"{hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()} {route}"
