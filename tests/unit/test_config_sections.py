"""What valid files mean, in both forms, and what they say without effect."""

from __future__ import annotations

from textwrap import dedent

import pytest

from iii_runtime.adapters.config_file import read_document
from iii_runtime.core.config import (
    Config,
    CorsConfig,
    HttpConfig,
    StateConfig,
    StreamConfig,
    TopicDefaults,
    parse_config,
)


def parse(text: str, **env: str) -> Config:
    return parse_config(dedent(text), source="iii-config.yaml", env=env, load=read_document)


NEWER = """
    workers:
      - name: {prefix}http
        config: {{port: 4111, host: 0.0.0.0, default_timeout: 5000, concurrency_request_limit: 7}}
      - name: {prefix}stream
        config: {{port: 4112, host: localhost}}
      - name: {prefix}state
        config: {{triggers_enabled: false, max_value_bytes: 1000}}
      - name: {prefix}queue
        config:
          queue_configs: {{default: {{max_retries: 4, concurrency: 5}}}}
          adapter: {{name: builtin, config: {{max_attempts: 9, backoff_ms: 50, concurrency: 2, mode: fifo}}}}
      - name: {prefix}cron
      - name: {prefix}pubsub
    """

OLDER = """
    modules:
      - class: modules::api::RestApiModule
        config: {port: 4111, host: 0.0.0.0, default_timeout: 5000, concurrency_request_limit: 7}
      - class: modules::stream::StreamModule
        config: {port: 4112, host: localhost}
      - class: modules::state::StateModule
        config: {triggers_enabled: false, max_value_bytes: 1000}
      - class: modules::queue::QueueModule
        config:
          queue_configs: {default: {max_retries: 4, concurrency: 5}}
          adapter:
            class: modules::queue::BuiltinQueueAdapter
            config: {max_attempts: 9, backoff_ms: 50, concurrency: 2, mode: fifo}
      - class: modules::cron::CronModule
        config: {adapter: {class: modules::cron::KvCronAdapter}}
      - class: modules::pubsub::PubSubModule
        config: {adapter: {class: modules::pubsub::LocalAdapter}}
    """


@pytest.mark.parametrize("text", [NEWER.format(prefix="iii-"), NEWER.format(prefix=""), OLDER])
def test_both_forms_and_both_spellings_of_the_names_mean_the_same(text: str) -> None:
    config = parse(text)
    assert config.http == HttpConfig(
        port=4111,
        host="0.0.0.0",  # noqa: S104
        default_timeout_ms=5000,
        concurrency_request_limit=7,
    )
    assert config.stream == StreamConfig(port=4112, host="localhost")
    assert config.state == StateConfig(triggers_enabled=False, max_value_bytes=1000)
    assert config.topics == TopicDefaults(max_attempts=9, backoff_ms=50, concurrency=2, mode="fifo")
    assert (config.queues["default"].max_retries, config.queues["default"].concurrency) == (4, 5)
    assert config.notices == ()
    assert config.source == "iii-config.yaml"


def test_what_is_left_out_keeps_its_default() -> None:
    config = parse("workers: [{name: iii-http, config: {port: 1}}, {name: iii-queue}]")
    assert config.http == HttpConfig(port=1)
    assert (config.stream, config.state, config.topics) == (StreamConfig(), StateConfig(), TopicDefaults())
    assert set(config.queues) == {"default"}


def test_an_empty_list_of_workers_is_the_default() -> None:
    assert parse("workers: []") == Config(source="iii-config.yaml")


def test_queues_know_their_line() -> None:
    text = """\
        workers:
          - name: queue
            config:
              queue_configs:
                a: {}

                b:
                  max_retries: 1
        """
    config = parse(text)
    assert {name: queue.line for name, queue in config.queues.items()} == {"default": None, "a": 5, "b": 7}


def test_queue_sections_add_up() -> None:
    config = parse(
        """
        workers:
          - {name: queue, config: {queue_configs: {a: {}}}}
          - {name: queue, config: {queue_configs: {b: {}}}}
        """
    )
    assert set(config.queues) == {"default", "a", "b"}


def test_a_star_means_any_like_the_empty_list_and_methods_are_capitals() -> None:
    config = parse("workers: [{name: http, config: {cors: {allowed_origins: ['*'], allowed_methods: [get]}}}]")
    assert config.http.cors == CorsConfig(allowed_origins=(), allowed_methods=("GET",))


def test_settings_without_meaning_give_one_notice_each_kind() -> None:
    """However many queues repeat a key, one notice at its first place counts them."""
    config = parse(
        """\
        port: 49134
        registration_namespace_grace_ms: 5
        workers:
          - name: queue
            config:
              queue_configs:
                a: {poll_interval_ms: 5, max_priority: 3, priority_field: p}
                b: {poll_interval_ms: 5, message_group_field: order_id}
              adapter: {name: builtin, config: {poll_interval_ms: 1, store_method: in_memory}}
          - name: state
            config: {adapter: {name: kv, config: {file_path: ./data, save_interval_ms: 5000}}}
          - name: stream
            config: {adapter: {name: redis, config: {redis_url: redis://x, anything: 1}}}
          - name: pubsub
            config: {adapter: {name: redis}}
          - name: cron
            config: {adapter: {name: kv, config: {lock_ttl_ms: 1, lock_index: x}}}
        """
    )
    assert [(notice.code, notice.line, notice.key) for notice in config.notices] == [
        ("engine_port", 1, "port"),
        ("registration_grace", 2, "registration_namespace_grace_ms"),
        ("poll_interval", 7, "workers[0].config.queue_configs.a.poll_interval_ms"),
        ("priority", 7, "workers[0].config.queue_configs.a.max_priority"),
        ("group_field_without_fifo", 8, "workers[0].config.queue_configs.b.message_group_field"),
        ("storage", 9, "workers[0].config.adapter.config.store_method"),
        ("adapter_without_effect", 13, "workers[2].config.adapter.name"),
        ("cron_lock", 17, "workers[4].config.adapter.config.lock_ttl_ms"),
    ]
    assert str(config.notices[2]) == (
        "iii-config.yaml:7: workers[0].config.queue_configs.a.poll_interval_ms: "
        "has no effect here: queues are woken by their messages (3 places)"
    )


@pytest.mark.parametrize(
    "name",
    ["iii-observability", "http_functions", "iii-http-functions", "exec", "iii-bridge", "telemetry", "iii-console"],
)
def test_other_workers_of_iii_are_accepted_with_one_notice_whatever_their_settings(name: str) -> None:
    config = parse(f"workers: [{{name: {name}, config: {{a: [1]}}}}, {{name: {name}}}]")
    (notice,) = config.notices
    assert (notice.code, notice.key) == ("worker_without_effect", "workers[0].name")
    assert notice.message == f"'{name}' has no effect here (2 places)"


def test_an_unknown_worker_is_ignored_with_a_notice_and_a_guess() -> None:
    config = parse("workers: [{name: iii-queu, config: {queue_configs: {a: {}}}}, {name: my-own-thing}]")
    assert set(config.queues) == {"default"}
    assert [(notice.code, notice.message) for notice in config.notices] == [
        ("worker_unknown", "'iii-queu' is not known here and is ignored; did you mean 'iii-queue'?"),
        ("worker_unknown", "'my-own-thing' is not known here and is ignored"),
    ]


def test_external_workers_of_the_older_form_are_ignored_with_a_notice() -> None:
    config = parse("modules: [{class: 'modules::cron::CronModule'}]\nworkers: [{class: 'my::Worker'}]")
    assert [notice.key for notice in config.notices] == ["workers[0].class"]


def test_settings_that_are_off_are_no_problem() -> None:
    """What is not supported yet is refused only when it asks for something."""
    config = parse("workers: [{name: http, config: {middleware: []}}, {name: stream, config: {auth_function: }}]")
    assert config.notices == ()


def test_texts_stay_texts_as_in_yaml_1_2() -> None:
    """`on`, `yes`, dates and times are no booleans, days or numbers in base 60."""
    config = parse("workers: [{name: queue, config: {queue_configs: {on: {}, yes: {}, 2024-01-01: {}}}}]")
    assert set(config.queues) == {"default", "on", "yes", "2024-01-01"}


def test_an_alias_repeats_its_value() -> None:
    config = parse("workers: [{name: queue, config: {queue_configs: {a: &same {max_retries: 8}, b: *same}}}]")
    assert [config.queues[name].max_retries for name in ("a", "b")] == [8, 8]
