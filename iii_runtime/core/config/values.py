"""The configuration as the rest of the runtime sees it. The defaults of every key live here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from iii_runtime.core.config.problem import render_at
from iii_runtime.core.queue import DEFAULT_QUEUE

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorsConfig:
    """Which browser pages may call the HTTP routes.

    Attributes:
        allowed_origins: Origins such as `http://localhost:3113`; empty means any.
        allowed_methods: HTTP methods in capitals; empty means any.
    """

    allowed_origins: tuple[str, ...] = ()
    allowed_methods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """The HTTP server.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        default_timeout_ms: Longest a request waits for its function.
        concurrency_request_limit: Requests served at the same time.
        cors: None sends no CORS headers, so pages of other origins cannot read the answers.
    """

    host: str = LOOPBACK
    port: int = 3111
    default_timeout_ms: int = 30_000
    concurrency_request_limit: int = 1024
    cors: CorsConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """The WebSocket server for streams.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
    """

    host: str = LOOPBACK
    port: int = 3112


@dataclass(frozen=True, slots=True, kw_only=True)
class StateConfig:
    """Keyed state.

    Attributes:
        triggers_enabled: Whether a change fires the state triggers.
        max_value_bytes: Largest value as JSON text; None leaves the limit to the store.
    """

    triggers_enabled: bool = True
    max_value_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """A named queue.

    Attributes:
        name: As in `queue_configs`.
        max_retries: Attempts in total, as in iii; 0 and 1 both mean one attempt.
        concurrency: Messages handled at the same time by one host.
        type: `standard`, or `fifo` (in order within each group).
        message_group_field: Top-level payload member whose value is the group; always set for fifo.
        backoff_ms: Wait after the first failed attempt; doubled after each further one.
        line: Where the file declares it; None for the built-in queue.
    """

    name: str
    max_retries: int = 3
    concurrency: int = 10
    type: Literal["standard", "fifo"] = "standard"
    message_group_field: str | None = None
    backoff_ms: int = 1000
    line: int | None = None

    @property
    def max_attempts(self) -> int:
        """Attempts in total, at least one."""
        return max(self.max_retries, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """What applies to a topic subscription that does not say otherwise.

    Attributes:
        max_attempts: Attempts in total; 0 and 1 both mean one attempt.
        backoff_ms: Wait after the first failed attempt; doubled after each further one.
        concurrency: Messages of one subscription handled at the same time by one host.
        mode: `fifo` handles the messages of a subscription one after the other.
    """

    max_attempts: int = 3
    backoff_ms: int = 1000
    concurrency: int = 10
    mode: Literal["concurrent", "fifo"] = "concurrent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something in the file that has no effect here. The start goes on.

    Attributes:
        code: A stable word for programs.
        source: The file, as the user named it.
        line: Line of the first place, from 1.
        key: Path of the first place.
        message: What is ignored, why, and how often it occurs if more than once.
    """

    code: str
    source: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        return render_at(self.source, self.line, self.key, self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole configuration. `Config()` is what runs without a file.

    Attributes:
        http: The HTTP server.
        stream: The WebSocket server.
        state: Keyed state.
        queues: By name, read-only; `default` is always among them.
        topics: Defaults of topic subscriptions.
        notices: What the file says without effect, in the order of the lines.
        source: The file, as the user named it; None without one.
    """

    http: HttpConfig = field(default_factory=HttpConfig)
    stream: StreamConfig = field(default_factory=StreamConfig)
    state: StateConfig = field(default_factory=StateConfig)
    queues: Mapping[str, QueueConfig] = field(default_factory=dict)
    topics: TopicDefaults = field(default_factory=TopicDefaults)
    notices: tuple[Notice, ...] = ()
    source: str | None = None

    def __post_init__(self) -> None:
        queues = {DEFAULT_QUEUE: QueueConfig(name=DEFAULT_QUEUE), **self.queues}
        object.__setattr__(self, "queues", MappingProxyType(queues))
