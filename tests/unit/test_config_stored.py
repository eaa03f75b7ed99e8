"""The configuration as it travels to a Lambda: nothing of it is lost."""

from __future__ import annotations

import json
import subprocess
import sys

from iii_runtime.core.config import (
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
from iii_runtime.core.config.stored import config_from_json, config_to_json

WHOLE = Config(
    http=HttpConfig(
        port=1,
        cors=CorsConfig(allowed_origins=("https://a.example",), allowed_methods=("GET",)),
        auth="jwt",
        jwt=JwtConfig(issuer="https://issuer.example/", audience=("a", "b")),
    ),
    stream=StreamConfig(port=2, auth="ticket"),
    state=StateConfig(triggers_enabled=False, max_value_bytes=5),
    queues={"pay": QueueConfig(name="pay", type="fifo", message_group_field="order_id", line=7)},
    topics=TopicDefaults(max_attempts=9, mode="fifo"),
    aws=AwsConfig(app="orders", defaults=StageConfig(memory_mb=256), stages={"prod": StageConfig(production=True)}),
    source="iii-config.yaml",
)


def test_a_configuration_comes_back_as_it_was() -> None:
    assert config_from_json(json.loads(json.dumps(config_to_json(WHOLE)))) == WHOLE
    assert config_from_json(json.loads(json.dumps(config_to_json(Config())))) == Config()


def test_reading_it_loads_no_pydantic_and_no_yaml() -> None:
    code = "import sys, iii_runtime.core.config.stored; print([m for m in ('pydantic', 'yaml') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
