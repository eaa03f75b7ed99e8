"""The keys of every section, as strict models. This module loads pydantic; nothing imports it before a file is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from iii_runtime.core.config.values import (
    Architecture,
    HttpConfig,
    LambdaPython,
    QueueConfig,
    StageConfig,
    StateConfig,
    StreamAuth,
    StreamConfig,
    TopicDefaults,
)
from iii_runtime.core.frozen import frozen
from iii_runtime.core.function_options import MAX_MEMORY_MB, MIN_MEMORY_MB
from iii_runtime.core.triggers import HttpAuth

MISMATCH = "iii_mismatch"
"""Error type of the checks below; the context says what was `expected`."""

REFUSED = "iii_refused"
"""Error type of a key that is known and not supported; the context has the `message`."""

_HTTP = HttpConfig()
_STREAM = StreamConfig()
_STATE = StateConfig()
_QUEUE = QueueConfig(name="default")
_TOPICS = TopicDefaults()
_U32 = 2**32 - 1

APP_RULE = r"[a-z][a-z0-9-]{0,23}"
STAGE_RULE = r"[a-z][a-z0-9]{1,11}"


@frozen
class NoEffect:
    """Marks a key that is accepted, checked, and means nothing here."""

    code: str
    message: str


_POLL = NoEffect("poll_interval", "has no effect here: queues are woken by their messages")
_PRIORITY = NoEffect("priority", "has no effect here: queues have no priorities")
_STORAGE = NoEffect("storage", "has no effect here: the host decides where and when data is stored")
_CRON_LOCK = NoEffect("cron_lock", "has no effect here: a tick is claimed in the store, without a timed lock")
_ENGINE_PORT = NoEffect("engine_port", "has no effect here: functions run in the host, no engine port is opened")
_GRACE = NoEffect("registration_grace", "has no effect here: functions are registered once, when the host starts")


def _matches(pattern: str, expected: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise PydanticCustomError(MISMATCH, "expected {expected}", {"expected": expected})
        return text

    return AfterValidator(check)


def _refuse(message: str, *, whatever: bool = False) -> BeforeValidator:
    """Refuse a value that means something; with `whatever` any value."""

    def check(value: object) -> None:
        if value or whatever:
            raise PydanticCustomError(REFUSED, "{message}", {"message": message})

    return BeforeValidator(check)


_Port = Annotated[int, Field(ge=0, le=65535)]
_Count = Annotated[int, Field(ge=0, le=_U32)]
_Positive = Annotated[int, Field(ge=1, le=_U32)]
_Throttle = Annotated[int, Field(ge=1, le=2**31 - 1)]
_Text = Annotated[str, _matches(r"(?s).*\S.*", "a text that is not empty")]
_Host = Annotated[str, _matches(r"[^\s/]+", "a host name or an address")]
_Origin = Annotated[
    str, _matches(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#]+", "an origin such as 'http://localhost:3113', without a path")
]
_Method = Annotated[str, _matches(r"\*|[A-Za-z]+", "an HTTP method such as 'GET'")]


class Section(BaseModel):
    """Unknown keys are refused, and no value is converted: `true` is no number and `'5'` is no integer."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RootSection(Section):
    """Top level of the file."""

    workers: list[object] = []
    modules: list[object] = []
    port: Annotated[_Port, _ENGINE_PORT] = 49134
    registration_namespace_grace_ms: Annotated[_Count, _GRACE] = 0


class CorsSection(Section):
    """`cors` of the http section."""

    allowed_origins: list[_Origin] = []
    allowed_methods: list[_Method] = []


class JwtSection(Section):
    """`jwt` of the http section."""

    issuer: Annotated[str, _matches(r"https://[^\s]+", "the https URL of an issuer")]
    audience: Annotated[list[_Text], Field(min_length=1)]


class HttpSection(Section):
    """`iii-http`."""

    host: _Host = _HTTP.host
    port: _Port = _HTTP.port
    default_timeout: _Positive = _HTTP.default_timeout_ms
    concurrency_request_limit: _Positive = _HTTP.concurrency_request_limit
    cors: CorsSection | None = None
    auth: HttpAuth | None = None
    jwt: JwtSection | None = None
    run_routes: bool | None = None
    middleware: Annotated[
        object,
        _refuse(
            "middleware is not supported yet, and routes would be open without it; "
            "remove it and check the request in the functions"
        ),
    ] = None


class StreamSection(Section):
    """`iii-stream`."""

    host: _Host = _STREAM.host
    port: _Port = _STREAM.port
    auth: StreamAuth | None = None
    auth_function: Annotated[
        object,
        _refuse(
            "stream authorization is not supported yet, and every client that reaches the port could join; "
            "remove it only if that is acceptable, and keep `host` on the loopback address"
        ),
    ] = None
    adapter: object = None


class StateSection(Section):
    """`iii-state`."""

    triggers_enabled: bool = _STATE.triggers_enabled
    max_value_bytes: _Positive | None = _STATE.max_value_bytes
    adapter: object = None


class QueueSection(Section):
    """`iii-queue`. The queues are checked one by one, so that a mistake in one hides none in another."""

    queue_configs: dict[str, object] = {}
    adapter: object = None


class QueueEntry(Section):
    """One entry of `queue_configs`."""

    max_retries: _Count = _QUEUE.max_retries
    concurrency: _Positive = _QUEUE.concurrency
    type: Literal["standard", "fifo"] = _QUEUE.type
    message_group_field: _Text | None = None
    backoff_ms: _Count = _QUEUE.backoff_ms
    poll_interval_ms: Annotated[_Count, _POLL] = 100
    max_priority: Annotated[int, Field(ge=1, le=255), _PRIORITY] = 1
    priority_field: Annotated[_Text, _PRIORITY] = "priority"


class AdapterOnlySection(Section):
    """`iii-cron` and `iii-pubsub`."""

    adapter: object = None


_StageName = Annotated[str, _matches(STAGE_RULE, "a stage name of 2 to 12 lower-case letters and digits")]


class StageSection(Section):
    """One entry of `stages` of the aws section; what it leaves out is as in the section itself."""

    production: bool | None = None
    memory_mb: Annotated[int, Field(ge=MIN_MEMORY_MB, le=MAX_MEMORY_MB)] | None = None
    architecture: Architecture | None = None
    python: LambdaPython | None = None
    log_retention_days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731] | None = None
    throttle_rate: _Throttle | None = None
    throttle_burst: _Throttle | None = None
    oldest_message_alarm_s: Annotated[int, Field(ge=60, le=1_209_600)] | None = None
    stacks: Annotated[int, Field(ge=1, le=50)] | None = None
    tracing: bool | None = None

    def over(self, defaults: StageConfig, *, production: bool) -> StageConfig:
        """Return `defaults` with what is given here."""
        given = self.model_dump(include=set(StageSection.model_fields), exclude_none=True)
        return replace(defaults, **{"production": production, **given})


class AwsSection(StageSection):
    """`iii-aws`."""

    production: Annotated[
        bool | None, _refuse("belongs to one stage: write it under `stages:`, below the stage's name", whatever=True)
    ] = None
    app: Annotated[str, _matches(APP_RULE, "an app name of lower-case letters, digits and '-', 24 at most")] = "iii"
    stages: dict[_StageName, StageSection] = {}


class StorageAdapter(Section):
    """Adapter that keeps its data in the engine."""

    store_method: Annotated[Literal["in_memory", "file_based"], _STORAGE] = "in_memory"
    file_path: Annotated[_Text, _STORAGE] = "."
    save_interval_ms: Annotated[_Count, _STORAGE] = 5000


class BuiltinQueueAdapter(StorageAdapter):
    """Queue adapter whose own settings govern topics."""

    max_attempts: _Count = _TOPICS.max_attempts
    backoff_ms: _Count = _TOPICS.backoff_ms
    concurrency: _Positive = _TOPICS.concurrency
    mode: Literal["concurrent", "fifo"] = _TOPICS.mode
    poll_interval_ms: Annotated[_Count, _POLL] = 100


class KvCronAdapter(Section):
    """Cron adapter with a lock."""

    lock_ttl_ms: Annotated[_Count, _CRON_LOCK] = 30_000
    lock_index: Annotated[_Text, _CRON_LOCK] = "cron_locks"


class LocalAdapter(Section):
    """Adapter without settings."""


@frozen(kw_only=True)
class SectionKind:
    """A section that means something here.

    Attributes:
        model: Its keys.
        adapters: Its adapters; None for one that has no effect here, whatever its settings.
    """

    model: type[Section]
    adapters: Mapping[str, type[Section] | None]


SECTIONS: Mapping[str, SectionKind] = {
    "http": SectionKind(model=HttpSection, adapters={}),
    "stream": SectionKind(model=StreamSection, adapters={"kv": StorageAdapter, "redis": None, "bridge": None}),
    "state": SectionKind(model=StateSection, adapters={"kv": StorageAdapter, "redis": None, "bridge": None}),
    "queue": SectionKind(
        model=QueueSection,
        adapters={"builtin": BuiltinQueueAdapter, "redis": None, "rabbitmq": None, "bridge": None},
    ),
    "cron": SectionKind(model=AdapterOnlySection, adapters={"kv": KvCronAdapter, "redis": None}),
    "aws": SectionKind(model=AwsSection, adapters={}),
    "pubsub": SectionKind(model=AdapterOnlySection, adapters={"local": LocalAdapter, "redis": None}),
}
