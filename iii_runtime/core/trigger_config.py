"""Triggers from iii's config dicts. A key that nothing reads is refused or reported, never just accepted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from iii_runtime.core.did_you_mean import did_you_mean
from iii_runtime.core.errors import IiiError, RegistrationError
from iii_runtime.core.triggers import (
    TYPE_NAMES,
    Cron,
    DurableSubscriber,
    Http,
    OnState,
    OnStream,
    Queue,
    Subscribe,
    TriggerKind,
    UnknownTrigger,
)

_QUEUE_CONFIG = frozenset({"type", "maxRetries", "concurrency", "backoffDelayMs"})
_QUEUE_CONFIG_WITHOUT_EFFECT = frozenset({"visibilityTimeout", "delaySeconds", "backoffType", "maxPriority"})


def parse_trigger(type_name: str, config: Mapping[str, Any]) -> TriggerKind:
    """Return the trigger that iii's `{"type": ..., "config": ...}` describes.

    `queue` with the key `queue` binds a named queue; with `topic`, like `durable:subscriber`, it is a subscription.

    Raises:
        RegistrationError: A known type with a config that cannot work, or with a key that does not exist.
    """
    parse = _PARSERS.get(type_name)
    if parse is None:
        return UnknownTrigger(type_name)
    known = {*_KEYS[type_name], "condition_function_id"}
    _refuse_unknown(config, known, f"{type_name} trigger: unknown config key")
    condition = config.get("condition_function_id")
    if condition is not None and not isinstance(condition, str):
        raise RegistrationError(f"condition_function_id must be a function id, found {condition!r}.")
    try:
        return parse(config, condition)
    except RegistrationError:
        raise
    except IiiError as error:
        raise RegistrationError(f"{type_name} trigger: {error.message}") from error


def render_trigger(kind: TriggerKind) -> tuple[str, dict[str, Any]]:
    """Return iii's type and config of a trigger, as `parse_trigger` reads them."""
    config: dict[str, Any] = {}
    match kind:
        case Http():
            config = {"http_method": kind.method, "api_path": kind.path, "auth": kind.auth}
        case Cron():
            config = {"expression": kind.expression, "timezone": kind.timezone, "overlap": kind.overlap}
        case Queue():
            config = {"queue": kind.name, "batch_size": kind.batch_size}
        case DurableSubscriber():
            options = {
                "type": None if kind.fifo is None else "fifo" if kind.fifo else "standard",
                "maxRetries": kind.max_retries,
                "concurrency": kind.concurrency,
                "backoffDelayMs": kind.backoff_ms,
            }
            config = {"topic": kind.topic, "queue_config": _present(options)}
        case Subscribe():
            config = {"topic": kind.topic}
        case OnState():
            config = {"scope": kind.scope, "key": kind.key}
        case OnStream():
            config = {"stream_name": kind.stream_name, "group_id": kind.group_id, "item_id": kind.item_id}
        case UnknownTrigger():
            pass  # its config was never read
    type_name = kind.type if isinstance(kind, UnknownTrigger) else TYPE_NAMES[type(kind)]
    return type_name, _present({**config, "condition_function_id": kind.condition})


def without_effect(type_name: str, config: Mapping[str, Any]) -> list[str]:
    """Return the keys of a config that iii knows and this runtime does not use, as `queue_config.maxPriority`."""
    options = config.get("queue_config")
    if "queue_config" not in _KEYS.get(type_name, ()) or not isinstance(options, Mapping):
        return []
    if config.get("topic") is None:
        return ["queue_config"]  # a named queue has its settings in iii-config.yaml
    return [f"queue_config.{key}" for key in options if key in _QUEUE_CONFIG_WITHOUT_EFFECT]


def _http(config: Mapping[str, Any], condition: str | None) -> Http:
    if config.get("middleware_function_ids"):
        raise RegistrationError("http trigger: middleware_function_ids is not supported yet.")
    auth: Any = config.get("auth")  # checked by the trigger
    return Http(_text(config, "http_method", "GET"), _text(config, "api_path"), auth=auth, condition=condition)


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
    if config.get("topic") is None:
        return Queue(_text(config, "queue"), batch_size=config.get("batch_size", 1), condition=condition)
    if config.get("queue") is not None:
        raise RegistrationError("queue trigger: 'queue' binds a named queue, 'topic' subscribes; give one of them.")
    return _durable(config, condition)


def _durable(config: Mapping[str, Any], condition: str | None) -> DurableSubscriber:
    options = config.get("queue_config") or {}
    if not isinstance(options, Mapping):
        raise RegistrationError(f"queue_config must be an object, found {options!r}.")
    _refuse_unknown(options, _QUEUE_CONFIG | _QUEUE_CONFIG_WITHOUT_EFFECT, "unknown key in queue_config")
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

_KEYS: Mapping[str, tuple[str, ...]] = {
    "http": ("api_path", "http_method", "auth", "middleware_function_ids"),
    "cron": ("expression", "timezone", "overlap"),
    "queue": ("queue", "topic", "queue_config", "batch_size"),
    "durable:subscriber": ("topic", "queue_config"),
    "subscribe": ("topic",),
    "state": ("scope", "key"),
    "stream": ("stream_name", "group_id", "item_id"),
}


def _present(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _refuse_unknown(given: Mapping[str, Any], known: Collection[str], what: str) -> None:
    for key in given:
        if key not in known:
            raise RegistrationError(f"{what} {key!r:.60}{did_you_mean(key, known)}")


def _text(config: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = config.get(key)
    if value is None:
        value = default
    if not isinstance(value, str) or not value:
        raise RegistrationError(f"config key '{key}' must be a non-empty string, found {value!r}.")
    return value


def _text_or_none(config: Mapping[str, Any], key: str) -> str | None:
    return None if config.get(key) is None else _text(config, key)
