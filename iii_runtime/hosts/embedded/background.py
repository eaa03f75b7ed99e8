"""What a host does besides answering requests: queues, the change feed, cron, expiry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any

from iii_runtime.core.cron import CronJob
from iii_runtime.core.queue import QueueSpec
from iii_runtime.engine.cron import CronScheduler, run_job
from iii_runtime.engine.runs.duties import Duties
from iii_runtime.engine.runs.journal import Journal
from iii_runtime.engine.runtime import Runtime
from iii_runtime.hosts.cron_builtins import cron_builtins
from iii_runtime.hosts.embedded.feed_pump import FeedPump, Push
from iii_runtime.hosts.embedded.isolation import Isolation
from iii_runtime.hosts.embedded.queue_runner import QueueRunner
from iii_runtime.hosts.embedded.run_runner import RunRunner
from iii_runtime.plan.jobs import plan_jobs

_log = logging.getLogger("iii_runtime.host")
_SWEEP_EVERY = timedelta(hours=1)
_RESTART_PAUSE = timedelta(seconds=1)
_RUNNER_GRACE = timedelta(seconds=10)

Sweep = Callable[[], Coroutine[Any, Any, object]]


class Background:
    """The loops of one host over one runtime.

    Args:
        runtime: The engine.
        push: Where stream changes go.
        sweep: Removes what has expired; called at start and hourly.
    """

    def __init__(self, runtime: Runtime, push: Push, sweep: Sweep) -> None:
        self._runtime = runtime
        self._stores = runtime.stores
        self._sweep = sweep
        self._runners: dict[str, QueueRunner] = {}
        self._isolation = Isolation(on_open=self.wake_queues)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._feed = FeedPump(runtime.stores, runtime.changes, push)
        self._cron = self._new_cron()
        self._following: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._stopping = False
        self._runs = self._new_run_runner()
        runtime.add_builtins(cron_builtins(runtime.app, runtime.stores.clock, self._run_now))

    @property
    def is_idle(self) -> bool:
        """Whether no message, change, tick or call is being worked on."""
        return (
            (self._following is None or self._following.done())
            and self._feed.is_idle
            and self._cron.is_idle
            and (self._runs is None or self._runs.is_idle)
            and not self._runtime.background_count
            and all(runner.is_idle for runner in self._runners.values())
        )

    async def settle(self) -> None:
        """Return when it is idle. What is due later does not count."""
        while not self.is_idle:
            if self._following is not None:
                await asyncio.wait({self._following})
            await self._runtime.settle()
            await self._cron.settle()
            await self._feed.settle()
            if self._runs is not None:
                await self._runs.settle()
            for runner in list(self._runners.values()):
                await runner.settle()

    async def start(self) -> None:
        """Void the leases of a process that died, start everything, and follow what is registered from now on."""
        released = await self._stores.queue.release_all()
        if released:
            _log.warning("messages of an interrupted run are attempted again", extra={"iii": {"count": released}})
        if self._runs is not None and (held := await self._runs.release_all()):
            _log.warning("runs that were interrupted go on", extra={"iii": {"count": held}})
        await self._warn_of_strays()
        loop = asyncio.get_running_loop()
        self._runtime.app.on_change(lambda: self._on_registered(loop))
        await self.reconcile()
        self._start("change feed", self._feed.run)
        self._start("cron", self._run_schedules)
        self._start("expiry", self._expire)
        if self._runs is not None:
            self._start("runs", self._runs.run)
        await asyncio.sleep(0)  # each takes its first step, so that it counts as at work from now on

    async def reconcile(self) -> None:
        """Follow what is registered: queues of subscriptions and cron jobs that came or went, until nothing is new."""
        async with self._one_at_a_time:
            followed = None
            while followed is not self._runtime.app.catalog:
                followed = self._runtime.app.catalog
                await self._follow(self._runtime.app.queues)
                self._cron.replace(plan_jobs(self._runtime.app.catalog))

    def wake_queue(self, name: str) -> None:
        """A message of this queue may have become due."""
        runner = self._runners.get(name)
        if runner is not None:
            runner.wake()

    def wake_queues(self) -> None:
        """Look for due messages in every queue."""
        for runner in self._runners.values():
            runner.wake()

    def wake_runs(self) -> None:
        """A run may have become due."""
        if self._runs is not None:
            self._runs.look()

    def wake_feed(self) -> None:
        """The change feed has grown."""
        self._feed.wake()

    async def next_due_ms(self) -> int | None:
        """Return when the next message of any queue, or the next run, becomes due."""
        due = [await self._stores.queue.next_due_ms(runner.queue) for runner in self._runners.values()]
        if self._stores.runs is not None:
            due.append(await self._stores.runs.next_due_ms())
        return min((instant for instant in due if instant is not None), default=None)

    async def stop(self, grace: timedelta) -> int:
        """Drain: start nothing new, let what runs end within `grace`; return how many messages were given up."""
        self._stopping = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace.total_seconds()
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})
        self._cron.stop()
        ending = [runner.stop(grace) for runner in self._runners.values()]
        if self._runs is not None:
            ending.append(self._runs.stop(grace))
        given_up = sum(await asyncio.gather(*ending))
        await self._runtime.settle(timedelta(seconds=max(deadline - loop.time(), 0)))
        for name, task in self._tasks.items():
            if not name.startswith("queue ") and name != "runs":
                task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        return given_up

    def _new_run_runner(self) -> RunRunner | None:
        runs, executor = self._stores.runs, self._runtime.run_executor
        if runs is None or executor is None:
            return None
        duties = Duties(runs, Journal(runs), self._runtime.enqueuer)
        runner = RunRunner(runs, executor, duties, self._stores.clock)
        self._runtime.run_workflows(runner)
        return runner

    def _start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks[name] = asyncio.create_task(self._keep_going(name, work), name=name)

    async def _keep_going(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do `work`, and again after a pause if a defect ends it: a host must not serve on with a loop missing."""
        while True:
            try:
                await work()
            except Exception:  # noqa: BLE001 - whatever the defect is, the loop must go on
                _log.exception("a loop failed and is started again", extra={"iii": {"loop": name}})
            else:
                return
            await self._stores.clock.sleep_until(self._stores.clock.now() + _RESTART_PAUSE)

    async def _run_schedules(self) -> None:
        if self._cron.has_ended:
            self._cron = self._new_cron()
            self._cron.replace(plan_jobs(self._runtime.app.catalog))
        await self._cron.run()

    def _new_cron(self) -> CronScheduler:
        return CronScheduler(clock=self._stores.clock, ticks=self._stores.ticks, fire=self._fire)

    def _on_registered(self, loop: asyncio.AbstractEventLoop) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._registered)

    def _registered(self) -> None:
        if not self._stopping and (self._following is None or self._following.done()):
            self._following = asyncio.create_task(self.reconcile(), name="following a registration")
            self._following.add_done_callback(_report)

    async def _follow(self, queues: Mapping[str, QueueSpec]) -> None:
        for name in [name for name, runner in self._runners.items() if queues.get(name) != runner.queue]:
            await self._stop_runner(name, _RUNNER_GRACE)
        for name, queue in queues.items():
            if name not in self._runners:
                await self._stores.queue.prepare(queue)
                self._runners[name] = QueueRunner(queue, self._stores, self._runtime.deliverer, self._isolation)
                self._start(f"queue {name}", self._runners[name].run)

    async def _stop_runner(self, name: str, grace: timedelta) -> None:
        await self._runners[name].stop(grace)
        await asyncio.wait({self._tasks.pop(f"queue {name}")})
        del self._runners[name]

    async def _fire(self, job: CronJob, nominal: datetime) -> None:
        await run_job(self._runtime.invoker, self._stores.clock, job, nominal)

    async def _run_now(self, function_id: str) -> datetime:
        return await self._cron.run_now(function_id)

    async def _expire(self) -> None:
        while True:
            try:
                await self._sweep()
            except Exception:  # noqa: BLE001 - the next hour tries again, whatever it was
                _log.exception("removing expired data failed; it is tried again in an hour")
            await self._stores.clock.sleep_until(self._stores.clock.now() + _SWEEP_EVERY)

    async def _warn_of_strays(self) -> None:
        for name in await self._stores.queue.queue_names():
            if name in self._runtime.app.queues:
                continue
            depth = await self._stores.queue.depth(name)
            waiting = depth.visible + depth.delayed + depth.in_flight
            if waiting:
                _log.warning(
                    "messages of a queue that is no longer declared wait until it is declared again or purged",
                    extra={"iii": {"queue": name, "messages": waiting}},
                )


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s ended with an error", task.get_name(), exc_info=error)
