"""`iii-config.yaml`: its values, its checks and its problems. Loads pydantic when a text is parsed, not before."""

from __future__ import annotations

from iii_runtime.core.config.document import Document, DocumentReader, KeyPath
from iii_runtime.core.config.parse import parse_config
from iii_runtime.core.config.problem import ConfigError, ConfigProblem
from iii_runtime.core.config.values import (
    DEFAULT_STAGE,
    Architecture,
    AwsConfig,
    Config,
    CorsConfig,
    HttpConfig,
    JwtConfig,
    Notice,
    QueueConfig,
    StageConfig,
    StateConfig,
    StreamAuth,
    StreamConfig,
    TopicDefaults,
)

__all__ = [
    "DEFAULT_STAGE",
    "Architecture",
    "AwsConfig",
    "Config",
    "ConfigError",
    "ConfigProblem",
    "CorsConfig",
    "Document",
    "DocumentReader",
    "HttpConfig",
    "JwtConfig",
    "KeyPath",
    "Notice",
    "QueueConfig",
    "StageConfig",
    "StateConfig",
    "StreamAuth",
    "StreamConfig",
    "TopicDefaults",
    "parse_config",
]
