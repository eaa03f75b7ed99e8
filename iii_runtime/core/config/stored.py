"""The configuration as JSON, for hosts that get it with their code and read no YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from iii_runtime.core.config.values import (
    AwsConfig,
    Config,
    CorsConfig,
    HttpConfig,
    JwtConfig,
    QueueConfig,
    StageConfig,
    StateConfig,
    StreamConfig,
    TopicDefaults,
)
from iii_runtime.core.payload import Json

T = TypeVar("T")


def config_to_json(config: Config) -> dict[str, Json]:
    """Return the stored form of a configuration, without its notices."""
    return {
        "http": asdict(config.http),
        "stream": asdict(config.stream),
        "state": asdict(config.state),
        "queues": {name: asdict(queue) for name, queue in config.queues.items()},
        "topics": asdict(config.topics),
        "aws": asdict(config.aws),
        "source": config.source,
    }


def config_from_json(stored: Mapping[str, Any]) -> Config:
    """Return what `config_to_json` stored."""
    http, aws = stored["http"], stored["aws"]
    return Config(
        http=_of(
            HttpConfig,
            http,
            cors=None if http["cors"] is None else _of(CorsConfig, http["cors"]),
            jwt=None if http["jwt"] is None else _of(JwtConfig, http["jwt"]),
        ),
        stream=_of(StreamConfig, stored["stream"]),
        state=_of(StateConfig, stored["state"]),
        queues={name: _of(QueueConfig, queue) for name, queue in stored["queues"].items()},
        topics=_of(TopicDefaults, stored["topics"]),
        aws=_of(
            AwsConfig,
            aws,
            defaults=_of(StageConfig, aws["defaults"]),
            stages={name: _of(StageConfig, stage) for name, stage in aws["stages"].items()},
        ),
        source=stored["source"],
    )


def _of(kind: type[T], members: Mapping[str, Any], **built: object) -> T:
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in members.items()} | built)
