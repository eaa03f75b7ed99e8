"""Everything that makes AWS invoke the Lambdas of one app, asked in turn."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from iii_runtime.plan.app_plan import AppPlan
from iii_runtime.plan.names import TICK_QUEUE
from tests.aws.cloud import Cloud
from tests.aws.event_sources import QueueSource, Source, Work
from tests.aws.schedules import MinuteSource, ScheduleSource
from tests.aws.stream_source import StreamSource

WATCH = timedelta(minutes=5)
"""How long the tick goes on looking at dead-letter queues after one of them has changed."""


class Sources:
    """The mappings of queues and of the stream, the schedules, and the rule of each minute.

    Args:
        cloud: The services, with everything of the app in them.
        plan: What was deployed.

    Attributes:
        queues: The mapping of each queue, by the runtime's name.
        minute: The rule of each minute.
    """

    def __init__(self, cloud: Cloud, plan: AppPlan) -> None:
        self._cloud = cloud
        self._plan = plan
        self._letters: tuple[str, ...] = ()
        self._seen_records = 0
        self._watch_until = cloud.clock.now()
        self.queues = {
            name: QueueSource(
                cloud,
                planned.name,
                planned.consumer,
                batch_size=planned.batch_size,
                concurrency=planned.max_concurrency,
            )
            for name, planned in plan.queues.items()
        }
        names = plan.deployment
        ticks = QueueSource(
            cloud, names.own_queue_name(TICK_QUEUE), names.system_name("tick"), batch_size=10, concurrency=2
        )
        self.minute = MinuteSource(cloud, names, self._tick_is_needed)
        self._turns: list[Source] = [*self.queues.values(), StreamSource(cloud, names), ticks]
        self._turns += [ScheduleSource(cloud, schedule) for schedule in plan.schedules if schedule.kind != "tick"]
        self._turns.append(self.minute)

    def poll(self) -> Work | None:
        """Return an invocation that is due; whoever had one comes last the next time."""
        for index, source in enumerate(self._turns):
            work = source.poll()
            if work is not None:
                self._turns = [*self._turns[index + 1 :], *self._turns[: index + 1]]
                return work
        return None

    def due_times(self, *, with_schedules: bool) -> Iterator[datetime]:
        """Return when each source that knows makes its next invocation.

        Args:
            with_schedules: Whether schedules and the tick count, which never end.
        """
        for source in self._turns:
            if isinstance(source, ScheduleSource | MinuteSource) and not with_schedules:
                continue
            due = source.next_due_ms()
            if due is not None:
                yield datetime.fromtimestamp(due / 1000, UTC)

    def _tick_is_needed(self) -> bool:
        return any(schedule.kind == "tick" for schedule in self._plan.schedules) or self._watches_letters()

    def _watches_letters(self) -> bool:
        """Return whether a dead-letter queue, or what is known of a message, has changed a short while ago."""
        with self._cloud.lock:
            letters = tuple(
                message.id
                for planned in self._plan.queues.values()
                for message in self._cloud.queue(planned.letter_name).held
            )
            records = self._cloud.stream_records(self._seen_records)
            self._seen_records += len(records)
        is_item = any(record["dynamodb"]["Keys"]["pk"]["S"].startswith("M#") for record in records)
        if is_item or letters != self._letters:
            self._letters = letters
            self._watch_until = self._cloud.clock.now() + WATCH
        return self._cloud.clock.now() < self._watch_until
