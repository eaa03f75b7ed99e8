"""Triggers: what starts a function. The typed values of the decorators, and the same parsed from iii's config dicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from iii_runtime.core.errors import IiiError, RegistrationError
from iii_runtime.core.payload import PayloadError, check_name


@dataclass(frozen=True, slots=True)
class Http:
    """An http route: `Http("POST", "/orders/:order_id")`. The function gets the request and returns the response."""

    method: str
    path: str
    condition: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        from iii_runtime.core.http.routes import parse_route  # noqa: PLC0415 - a worker without routes need not load it

        parse_route(self.method, self.path, None)


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Queue:
    """Binds the function to a queue of `iii-config.yaml` as the consumer of its messages."""

    name: str
    condition: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_name(self.name, "the name of a queue")


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Events of `publish` on a topic: at most once, not stored; every subscriber is invoked."""

    topic: str
    condition: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_name(self.topic, "the name of a topic")


@dataclass(frozen=True, slots=True)
class OnState:
    """Changes of state, of every scope and key or of exactly the given ones."""

    scope: str | None = None
    key: str | None = None
    condition: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_names(scope=self.scope, key=self.key)


@dataclass(frozen=True, slots=True)
class OnStream:
    """Changes and events of a stream, of every group and item or of exactly the given ones."""

    stream_name: str
    group_id: str | None = None
    item_id: str | None = None
    condition: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_name(self.stream_name, "stream_name", 1024)
        _check_names(group_id=self.group_id, item_id=self.item_id)


@dataclass(frozen=True, slots=True)
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


def parse_trigger(type_name: str, config: Mapping[str, Any]) -> TriggerKind:
    """Return the trigger that iii's `{"type": ..., "config": ...}` describes.

    `queue` with the key `queue` binds a named queue; with `topic`, like `durable:subscriber`, it is a subscription.

    Raises:
        RegistrationError: A known type with a config that cannot work.
    """
    parse = _PARSERS.get(type_name)
    if parse is None:
        return UnknownTrigger(type_name)
    condition = config.get("condition_function_id")
    if condition is not None and not isinstance(condition, str):
        raise RegistrationError(f"condition_function_id must be a function id, found {condition!r}.")
    try:
        return parse(config, condition)
    except RegistrationError:
        raise
    except IiiError as error:
        raise RegistrationError(f"{type_name} trigger: {error.message}") from error


def _http(config: Mapping[str, Any], condition: str | None) -> Http:
    if config.get("middleware_function_ids"):
        raise RegistrationError("http trigger: middleware_function_ids is not supported yet.")
    return Http(_text(config, "http_method", "GET"), _text(config, "api_path"), condition=condition)


def _cron(config: Mapping[str, Any], condition: str | None) -> Cron:
    overlap = config.get("overlap", False)
    if not isinstance(overlap, bool):
        raise RegistrationError(f"config key 'overlap' must be true or false, found {overlap!r:.60}.")
    return Cron(
        _text(config, "expression"),
        timezone=_text(config, "timezone", "UTC"),
        overlap=overlap,
        condition=condition,
    )


def _queue(config: Mapping[str, Any], condition: str | None) -> Queue | DurableSubscriber:
    if "topic" in config:
        return _durable(config, condition)
    return Queue(_text(config, "queue"), condition=condition)


def _durable(config: Mapping[str, Any], condition: str | None) -> DurableSubscriber:
    options = config.get("queue_config") or {}
    if not isinstance(options, Mapping):
        raise RegistrationError(f"queue_config must be an object, found {options!r}.")
    kind = options.get("type")
    if kind not in {None, "standard", "fifo"}:
        raise RegistrationError(f"queue_config.type must be standard or fifo, found {kind!r}.")
    return DurableSubscriber(
        _text(config, "topic"),
        max_retries=options.get("maxRetries"),
        concurrency=options.get("concurrency"),
        fifo=None if kind is None else kind == "fifo",
        backoff_ms=options.get("backoffDelayMs"),
        condition=condition,
    )


def _subscribe(config: Mapping[str, Any], condition: str | None) -> Subscribe:
    return Subscribe(_text(config, "topic"), condition=condition)


def _state(config: Mapping[str, Any], condition: str | None) -> OnState:
    return OnState(_text_or_none(config, "scope"), _text_or_none(config, "key"), condition=condition)


def _stream(config: Mapping[str, Any], condition: str | None) -> OnStream:
    return OnStream(
        _text(config, "stream_name"),
        _text_or_none(config, "group_id"),
        _text_or_none(config, "item_id"),
        condition=condition,
    )


_PARSERS: Mapping[str, Callable[[Mapping[str, Any], str | None], TriggerKind]] = {
    "http": _http,
    "cron": _cron,
    "queue": _queue,
    "durable:subscriber": _durable,
    "subscribe": _subscribe,
    "state": _state,
    "stream": _stream,
}


def _text(config: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = config.get(key)
    if value is None:
        value = default
    if not isinstance(value, str) or not value:
        raise RegistrationError(f"config key '{key}' must be a non-empty string, found {value!r}.")
    return value


def _text_or_none(config: Mapping[str, Any], key: str) -> str | None:
    return None if config.get(key) is None else _text(config, key)


def _check_name(value: object, what: str, limit: int = 256) -> None:
    try:
        check_name(value, what, limit=limit)
    except PayloadError as error:
        raise RegistrationError(error.message) from error


def _check_names(**names: str | None) -> None:
    for what, value in names.items():
        if value is not None:
            _check_name(value, what, 1024)


def _check_integer(key: str, value: object, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RegistrationError(f"queue_config.{key} must be an integer of at least {least}, found {value!r}.")
