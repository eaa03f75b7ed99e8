"""What runs without a file, and the file this repository ships."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from iii_runtime.adapters.config_file import load_config
from iii_runtime.core.config import AwsConfig, Config, CorsConfig, HttpConfig, QueueConfig, StageConfig, StreamConfig

ROOT_FILE = Path(__file__).parents[2] / "iii-config.yaml"


def test_without_a_file_everything_has_its_default() -> None:
    assert load_config(None, {}) == Config()
    assert Config().http == HttpConfig(host="127.0.0.1", port=3111, default_timeout_ms=30_000)
    assert Config().stream == StreamConfig(host="127.0.0.1", port=3112)
    assert dict(Config().queues) == {"default": QueueConfig(name="default")}


def test_the_default_queue_cannot_be_lost() -> None:
    config = Config(queues={"orders": QueueConfig(name="orders")})
    assert set(config.queues) == {"default", "orders"}


def test_a_declared_default_queue_replaces_the_built_in_one() -> None:
    mine = QueueConfig(name="default", max_retries=7)
    assert Config(queues={"default": mine}).queues["default"] is mine


def test_the_values_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().http.port = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        Config().queues["x"] = QueueConfig(name="x")  # type: ignore[index]


@pytest.mark.parametrize(("max_retries", "attempts"), [(0, 1), (1, 1), (5, 5)])
def test_max_retries_counts_attempts_in_total_and_there_is_always_one(max_retries: int, attempts: int) -> None:
    assert QueueConfig(name="q", max_retries=max_retries).max_attempts == attempts


def test_defaults_need_no_pydantic() -> None:
    """A start without a file stays fast, and so does one that only imports the package."""
    code = (
        "import sys, iii_runtime.core.config as c; c.Config(); "
        "sys.exit(any(name in sys.modules for name in ('pydantic', 'pydantic_core', 'yaml')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_file_at_the_root_is_valid_and_has_no_notices() -> None:
    config = load_config(ROOT_FILE, {})
    assert config.notices == ()
    assert config.http == HttpConfig(
        cors=CorsConfig(
            allowed_origins=("http://localhost:3113", "http://127.0.0.1:3113"),
            allowed_methods=("GET", "POST", "OPTIONS"),
        )
    )
    assert {name: dataclasses.replace(queue, line=None) for name, queue in config.queues.items()} == {
        "default": QueueConfig(name="default"),
        "order-validate": QueueConfig(name="order-validate", max_retries=2),
        "order-payment": QueueConfig(
            name="order-payment",
            max_retries=5,
            backoff_ms=2000,
            type="fifo",
            message_group_field="order_id",
            concurrency=2,
        ),
        "order-ship": QueueConfig(name="order-ship"),
    }


def test_the_file_at_the_root_leaves_who_may_come_in_to_the_stage_or_the_environment() -> None:
    assert (load_config(ROOT_FILE, {}).http.auth, load_config(ROOT_FILE, {}).stream.auth) == (None, None)
    config = load_config(ROOT_FILE, {"III_HTTP_AUTH": "iam", "III_STREAM_AUTH": "ticket"})
    assert (config.http.auth, config.stream.auth) == ("iam", "ticket")
    assert config.aws == AwsConfig(app="orders", stages={"prod": StageConfig(production=True, log_retention_days=90)})


def test_the_ports_of_the_file_at_the_root_come_from_the_environment() -> None:
    config = load_config(ROOT_FILE, {"III_HTTP_PORT": "4000", "III_STREAM_PORT": "0"})
    assert (config.http.port, config.stream.port) == (4000, 0)
