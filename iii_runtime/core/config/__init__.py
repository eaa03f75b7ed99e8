"""`iii-config.yaml`: its values, its checks and its problems. Loads pydantic when a text is parsed, not before."""

from __future__ import annotations

from iii_runtime.core.config.document import Document, DocumentReader, KeyPath
from iii_runtime.core.config.parse import parse_config
from iii_runtime.core.config.problem import ConfigError, ConfigProblem
from iii_runtime.core.config.values import (
    Config,
    CorsConfig,
    HttpConfig,
    Notice,
    QueueConfig,
    StateConfig,
    StreamConfig,
    TopicDefaults,
)

__all__ = [
    "Config",
    "ConfigError",
    "ConfigProblem",
    "CorsConfig",
    "Document",
    "DocumentReader",
    "HttpConfig",
    "KeyPath",
    "Notice",
    "QueueConfig",
    "StateConfig",
    "StreamConfig",
    "TopicDefaults",
    "parse_config",
]
