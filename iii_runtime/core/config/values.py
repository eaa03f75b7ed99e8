"""The configuration as the rest of the runtime sees it. The defaults of every key live here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from iii_runtime.core.config.problem import render_at
from iii_runtime.core.frozen import frozen
from iii_runtime.core.queue import DEFAULT_QUEUE
from iii_runtime.core.triggers import HttpAuth

LOOPBACK = "127.0.0.1"
DEFAULT_STAGE = "dev"

StreamAuth: TypeAlias = Literal["iam", "ticket", "none"]
Architecture: TypeAlias = Literal["arm64", "x86_64"]
LambdaPython: TypeAlias = Literal["3.11", "3.12", "3.13", "3.14", "3.15"]
"""The runtimes of Lambda on which this package runs."""


@frozen(kw_only=True)
class CorsConfig:
    """Which browser pages may call the HTTP routes.

    Attributes:
        allowed_origins: Origins such as `http://localhost:3113`; empty means any.
        allowed_methods: HTTP methods in capitals; empty means any.
    """

    allowed_origins: tuple[str, ...] = ()
    allowed_methods: tuple[str, ...] = ()


@frozen(kw_only=True)
class JwtConfig:
    """Whose tokens an http route takes.

    Attributes:
        issuer: URL of the issuer, whose keys are found by OpenID discovery.
        audience: Accepted values of the claim `aud`.
    """

    issuer: str
    audience: tuple[str, ...]


@frozen(kw_only=True)
class HttpConfig:
    """The HTTP server.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        default_timeout_ms: Longest a request waits for its function.
        concurrency_request_limit: Requests served at the same time.
        cors: None sends no CORS headers, so pages of other origins cannot read the answers.
        auth: Who may call the routes on AWS that say nothing of their own; None leaves it to the stage.
        jwt: Whose tokens `auth: jwt` takes.
        run_routes: Whether the routes of durable runs are there; None: where not everybody can reach them.
        line: Where the file has this section; None without one.
    """

    host: str = LOOPBACK
    port: int = 3111
    default_timeout_ms: int = 30_000
    concurrency_request_limit: int = 1024
    cors: CorsConfig | None = None
    auth: HttpAuth | None = None
    jwt: JwtConfig | None = None
    run_routes: bool | None = None
    line: int | None = field(default=None, compare=False)


@frozen(kw_only=True)
class StreamConfig:
    """The WebSocket server for streams.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        auth: Who may connect on AWS: `iam`, `ticket` (a short-lived one, got from an http route under the http
            section's `auth`) or `none`; None leaves it to the stage.
        line: Where the file has this section; None without one.
    """

    host: str = LOOPBACK
    port: int = 3112
    auth: StreamAuth | None = None
    line: int | None = field(default=None, compare=False)


@frozen(kw_only=True)
class StateConfig:
    """Keyed state.

    Attributes:
        triggers_enabled: Whether a change fires the state triggers.
        max_value_bytes: Largest value as JSON text; None leaves the limit to the store.
    """

    triggers_enabled: bool = True
    max_value_bytes: int | None = None


@frozen(kw_only=True)
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


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class StageConfig:
    """How one stage is hosted on AWS.

    Attributes:
        production: Routes need an `auth`, data is retained and protected from deletion. True for a stage called `prod`.
        memory_mb: Memory of a Lambda that asks for none.
        architecture: Processor of the Lambdas.
        python: Version of their runtime, `major.minor`.
        log_retention_days: How long log lines are kept.
        throttle_rate: Http requests a second, over all callers.
        throttle_burst: Http requests at once, over all callers.
        oldest_message_alarm_s: Age of a queue's oldest message that raises an alarm, seconds.
        stacks: Over how many stacks functions are spread when they are first deployed; they stay there.
        tracing: Whether the Lambdas trace with X-Ray.
    """

    production: bool = False
    memory_mb: int = 512
    architecture: Architecture = "arm64"
    python: LambdaPython = "3.14"
    log_retention_days: int = 30
    throttle_rate: int = 50
    throttle_burst: int = 100
    oldest_message_alarm_s: int = 900
    stacks: int = 1
    tracing: bool = False


@frozen(kw_only=True)
class AwsConfig:
    """What is deployed under which name; our own addition to the file.

    Attributes:
        app: First part of the names of everything on AWS.
        defaults: Of every stage, but for `production`.
        stages: The stages the file speaks of, by name.
        line: Where the file has this section; None without one: then nobody plans to deploy it.
    """

    app: str = "iii"
    defaults: StageConfig = field(default_factory=StageConfig)
    stages: Mapping[str, StageConfig] = field(default_factory=dict)
    line: int | None = field(default=None, compare=False)

    def stage(self, name: str) -> StageConfig:
        """Return the settings of a stage, also of one the file does not mention."""
        return self.stages.get(name) or replace(self.defaults, production=is_production(name))


def is_production(stage_name: str) -> bool:
    """Return whether a stage of this name is one of production, unless the file says otherwise."""
    return stage_name in {"prod", "production"}


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class Config:
    """A whole configuration. `Config()` is what runs without a file.

    Attributes:
        http: The HTTP server.
        stream: The WebSocket server.
        state: Keyed state.
        queues: By name, read-only; `default` is always among them.
        topics: Defaults of topic subscriptions.
        aws: How it is hosted on AWS.
        notices: What the file says without effect, in the order of the lines.
        source: The file, as the user named it; None without one.
    """

    http: HttpConfig = field(default_factory=HttpConfig)
    stream: StreamConfig = field(default_factory=StreamConfig)
    state: StateConfig = field(default_factory=StateConfig)
    queues: Mapping[str, QueueConfig] = field(default_factory=dict)
    topics: TopicDefaults = field(default_factory=TopicDefaults)
    aws: AwsConfig = field(default_factory=AwsConfig)
    notices: tuple[Notice, ...] = ()
    source: str | None = None

    def __post_init__(self) -> None:
        queues = {DEFAULT_QUEUE: QueueConfig(name=DEFAULT_QUEUE), **self.queues}
        object.__setattr__(self, "queues", MappingProxyType(queues))
