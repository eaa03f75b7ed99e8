"""Triggers: what starts a function, as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeAlias, get_args

from iii_runtime.core.errors import IiiError, RegistrationError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.payload import PayloadError, check_name

HttpAuth: TypeAlias = Literal["iam", "jwt", "none"]
"""Signed by AWS credentials, with a token of the configured issuer, or open to everybody."""

HTTP_AUTHS: tuple[HttpAuth, ...] = get_args(HttpAuth)

MAX_BATCH_SIZE = 10


@frozen
class Http:
    """An http route: `Http("POST", "/orders/:order_id")`. The function gets the request and returns the response.

    Attributes:
        method: In any case.
        path: With `:name` parameters.
        auth: Who may call it on AWS; the http section's `auth` if None. The embedded host, on loopback, asks nobody.
    """

    method: str
    path: str
    auth: HttpAuth | None = field(default=None, kw_only=True)
    condition: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        from iii_runtime.core.http.routes import parse_route  # noqa: PLC0415 - a worker without routes need not load it

        parse_route(self.method, self.path, None)
        given: object = self.auth
        if given is not None and given not in HTTP_AUTHS:
            raise RegistrationError(
                f"auth of an http trigger must be one of {', '.join(HTTP_AUTHS)}, found {given!r:.60}."
            )


@frozen
class Cron:
    """A schedule of 6 or 7 fields, seconds first: `Cron("0 0 * * * *")` is hourly.

    Attributes:
        expression: sec min hour day-of-month month day-of-week [year]; weekdays 1-7 are Sunday-Saturday.
        timezone: IANA name; an addition to iii.
        overlap: Whether a tick fires while the previous run still goes on; an addition to iii.
    """

    expression: str
    timezone: str = field(default="UTC", kw_only=True)
    overlap: bool = field(default=False, kw_only=True)
    condition: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        from iii_runtime.core.cron import CronSchedule  # noqa: PLC0415 - a worker without schedules need not load it

        try:
            CronSchedule.parse(self.expression, self.timezone)
        except IiiError as error:
            raise RegistrationError(error.message, code=error.code) from error


@frozen
class Queue:
    """Binds the function to a queue of `iii-config.yaml` as the consumer of its messages.

    Attributes:
        name: The queue.
        batch_size: Messages one Lambda invocation is given, 1 to 10. With more than one, a killed sandbox takes the
            others of its batch along: they are received again, and may run again. Without effect on a laptop.
    """

    name: str
    batch_size: int = field(default=1, kw_only=True)
    condition: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        # Loaded here: a worker without queues does without it.
        from iii_runtime.core.queue import QUEUE_NAME_RULE, is_queue_name  # noqa: PLC0415

        if not is_queue_name(self.name):
            raise RegistrationError(f"a queue trigger needs {QUEUE_NAME_RULE}, found {self.name!r:.60}.")
        size: object = self.batch_size
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_BATCH_SIZE:
            raise RegistrationError(f"batch_size must be an integer from 1 to {MAX_BATCH_SIZE}, found {size!r:.60}.")


@frozen
class DurableSubscriber:
    """Messages of `iii::durable::publish` on a topic, each kept in a queue of this function's own.

    Attributes:
        topic: Name of the topic.
        max_retries: Attempts after the first one, as in iii: N means N + 1 attempts.
        concurrency: Messages handled at the same time.
        fifo: Strictly one after another.
        backoff_ms: Wait after the first failed attempt; doubled after each further one.

    What is None is taken from the queue section of `iii-config.yaml`: by default 3 attempts, 10 at once, 1000 ms.
    """

    topic: str
    max_retries: int | None = field(default=None, kw_only=True)
    concurrency: int | None = field(default=None, kw_only=True)
    fifo: bool | None = field(default=None, kw_only=True)
    backoff_ms: int | None = field(default=None, kw_only=True)
    condition: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_name(self.topic, "the name of a topic")
        _check_integer("maxRetries", self.max_retries, 0)
        _check_integer("concurrency", self.concurrency, 1)
        _check_integer("backoffDelayMs", self.backoff_ms, 0)


@frozen
class Subscribe:
    """Events of `publish` on a topic: at most once, not stored; every subscriber is invoked."""

    topic: str
    condition: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_name(self.topic, "the name of a topic")


@frozen
class OnState:
    """Changes of state, of every scope and key or of exactly the given ones."""

    scope: str | None = None
    key: str | None = None
    condition: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_names(scope=self.scope, key=self.key)


@frozen
class OnStream:
    """Changes and events of a stream, of every group and item or of exactly the given ones."""

    stream_name: str
    group_id: str | None = None
    item_id: str | None = None
    condition: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_name(self.stream_name, "stream_name")
        _check_names(group_id=self.group_id, item_id=self.item_id)


@frozen
class UnknownTrigger:
    """A trigger type this runtime does not have: kept, reported, never fired."""

    type: str
    condition: str | None = None


TriggerKind: TypeAlias = Http | Cron | Queue | DurableSubscriber | Subscribe | OnState | OnStream | UnknownTrigger

TYPE_NAMES: Mapping[type, str] = {
    Http: "http",
    Cron: "cron",
    Queue: "queue",
    DurableSubscriber: "durable:subscriber",
    Subscribe: "subscribe",
    OnState: "state",
    OnStream: "stream",
}


def _check_name(value: object, what: str) -> None:
    try:
        check_name(value, what)
    except PayloadError as error:
        raise RegistrationError(error.message) from error


def _check_names(**names: str | None) -> None:
    for what, value in names.items():
        if value is not None:
            _check_name(value, what)


def _check_integer(key: str, value: object, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RegistrationError(f"queue_config.{key} must be an integer of at least {least}, found {value!r}.")
