"""Consumes one queue: receives what is due, up to its concurrency, and renews the leases of what runs."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta

from iii_runtime.core.errors import StoreError
from iii_runtime.core.queue import LEASE, QueueSpec
from iii_runtime.engine.deliver import Deliverer
from iii_runtime.engine.stores import Stores
from iii_runtime.hosts.embedded.isolation import Isolation, is_suspect
from iii_runtime.ports.message_queue import Delivery

_log = logging.getLogger("iii_runtime.queue")
_RENEW_EVERY = LEASE / 3
_STORE_PAUSE = timedelta(seconds=1)
_PUT_OFF = timedelta(seconds=1)


class QueueRunner:
    """One per queue. `wake` tells it that something became due.

    Args:
        queue: The queue.
        stores: The ports.
        deliverer: Handles what is received.
        isolation: Shared by all queues of the host.
    """

    def __init__(
        self, queue: QueueSpec, stores: Stores, deliverer: Deliverer, isolation: Isolation | None = None
    ) -> None:
        self.queue = queue
        self._isolation = isolation or Isolation()
        self._stores = stores
        self._deliverer = deliverer
        self._wake = asyncio.Event()
        self._held = asyncio.Event()
        self._rested = asyncio.Event()
        self._left = asyncio.Event()
        self._left.set()
        self._stopping = False
        self._active: dict[asyncio.Task[None], Delivery] = {}
        self._looking = True
        self._renewed_at = stores.clock.now()

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing new is being looked for."""
        is_looking = self._looking or (self._wake.is_set() and not self._stopping)
        return not self._active and not is_looking

    def wake(self) -> None:
        """Look for due messages now."""
        self._wake.set()

    async def settle(self) -> None:
        """Return when it is idle."""
        while not self.is_idle:
            self._rested.clear()
            await self._rested.wait()

    async def run(self) -> None:
        """Consume until `stop`. What runs then is left to `stop`."""
        self._left.clear()
        renewal = asyncio.create_task(self._renew())
        try:
            while not self._stopping:
                self._looking = True
                self._wake.clear()
                try:
                    full = await self._receive()
                    until = None if full else await self._stores.queue.next_due_ms(self.queue)
                except StoreError as error:
                    _log.error("cannot receive", extra={"iii": {"queue": self.queue.name, "error": error.message}})
                    full, until = True, self._stores.clock.now_ms() + round(_STORE_PAUSE.total_seconds() * 1000)
                self._looking = False
                self._rested.set()
                await self._wait(until)
        finally:
            self._looking = False
            self._rested.set()
            self._left.set()
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)

    async def stop(self, grace: timedelta) -> int:
        """Receive no more, wait for what runs at most `grace`, and return how many were given up.

        A message given up keeps its lease until the next start voids it: it is attempted again, never lost.
        """
        self._stopping = True
        self._wake.set()
        await self._left.wait()  # a receive that is under way may still bring something
        tasks = set(self._active)
        if not tasks:
            return 0
        _, pending = await asyncio.wait(tasks, timeout=grace.total_seconds())
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        return len(pending)

    async def _receive(self) -> bool:
        """Start what is due; return whether nothing more can be started before something wakes this runner."""
        while self._isolation.is_open and (free := self.queue.concurrency - len(self._active)) > 0:
            self._isolation.hold()
            try:
                if self._stores.clock.now() - self._renewed_at >= _RENEW_EVERY:
                    # The machine may have slept: what runs here must not be received here a second time.
                    await self._extend_leases()
                deliveries = await self._stores.queue.receive(self.queue, free, LEASE)
                for delivery in deliveries:
                    self._begin(delivery)
            finally:
                self._isolation.drop()
            if len(deliveries) < free:
                return False
        return True

    def _begin(self, delivery: Delivery) -> None:
        is_alone = is_suspect(delivery) and self._isolation.take()
        if is_alone:
            work, end = self._alone(delivery), self._isolation.release
        else:
            self._isolation.hold()
            is_put_off = is_suspect(delivery)
            work = self._put_off(delivery) if is_put_off else self._deliverer.deliver(self.queue, delivery)
            end = self._isolation.drop
        task = asyncio.create_task(work)
        self._active[task] = delivery
        self._held.set()
        task.add_done_callback(self._ended)
        task.add_done_callback(lambda _: end())

    async def _alone(self, delivery: Delivery) -> None:
        fields = {"queue": self.queue.name, "message_receipt_id": delivery.receipt, "receives": delivery.receives}
        _log.warning("interrupted repeatedly, runs alone", extra={"iii": fields})
        await self._isolation.quiet()
        await self._deliverer.deliver(self.queue, delivery)

    async def _put_off(self, delivery: Delivery) -> None:
        await self._stores.queue.hide(delivery, _PUT_OFF)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._active[task]
        self._wake.set()
        if not self._active:
            self._held.clear()
            self._rested.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("delivery failed", exc_info=error, extra={"iii": {"queue": self.queue.name}})

    async def _wait(self, until_ms: int | None) -> None:
        woken = asyncio.create_task(self._wake.wait())
        waits: set[asyncio.Task[object]] = {woken}
        if until_ms is not None:
            instant = datetime.fromtimestamp(until_ms / 1000, UTC)
            waits.add(asyncio.create_task(self._stores.clock.sleep_until(instant)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _renew(self) -> None:
        while True:
            await self._held.wait()
            await self._stores.clock.sleep_until(self._stores.clock.now() + _RENEW_EVERY)
            try:
                await self._extend_leases()
            except StoreError as error:
                _log.error("cannot renew leases", extra={"iii": {"queue": self.queue.name, "error": error.message}})

    async def _extend_leases(self) -> None:
        now = self._stores.clock.now()
        if self._active:
            await self._stores.queue.extend(list(self._active.values()), LEASE)
        self._renewed_at = now  # only now: after a refusal the next receive tries again first
