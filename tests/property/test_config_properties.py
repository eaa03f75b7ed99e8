"""Laws of the configuration: what is written is what is read, and nothing but `ConfigError` comes out."""

from __future__ import annotations

import string
from dataclasses import replace

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iii_runtime.adapters.config_file import read_document
from iii_runtime.core.config import (
    Config,
    ConfigError,
    HttpConfig,
    QueueConfig,
    StateConfig,
    StreamConfig,
    TopicDefaults,
    parse_config,
)
from iii_runtime.core.config.expand import expand, find_references

U32 = 2**32 - 1
LETTERS = string.ascii_letters + string.digits
counts = st.integers(min_value=0, max_value=U32)
positive = st.integers(min_value=1, max_value=U32)
ports = st.integers(min_value=0, max_value=65535)
words = st.text(LETTERS, min_size=1, max_size=12)
queue_names = st.builds(str.__add__, st.sampled_from(LETTERS), st.text(LETTERS + "._-", max_size=20))


@st.composite
def queue_configs(draw: st.DrawFn) -> QueueConfig:
    kind = draw(st.sampled_from(("standard", "fifo")))
    return QueueConfig(
        name=draw(queue_names),
        max_retries=draw(counts),
        concurrency=draw(positive),
        type="fifo" if kind == "fifo" else "standard",
        message_group_field=draw(words) if kind == "fifo" else None,
        backoff_ms=draw(counts),
    )


configs = st.builds(
    Config,
    http=st.builds(HttpConfig, host=words, port=ports, default_timeout_ms=positive, concurrency_request_limit=positive),
    stream=st.builds(StreamConfig, host=words, port=ports),
    state=st.builds(StateConfig, triggers_enabled=st.booleans(), max_value_bytes=st.none() | positive),
    queues=st.lists(queue_configs(), unique_by=lambda queue: queue.name, max_size=4).map(
        lambda queues: {queue.name: queue for queue in queues}
    ),
    topics=st.builds(
        TopicDefaults,
        max_attempts=counts,
        backoff_ms=counts,
        concurrency=positive,
        mode=st.sampled_from(("concurrent", "fifo")),
    ),
)


def as_plain(config: Config) -> dict[str, dict[str, object]]:
    """The settings of each section, as a file has them."""
    http, topics = config.http, config.topics
    return {
        "http": {
            "host": http.host,
            "port": http.port,
            "default_timeout": http.default_timeout_ms,
            "concurrency_request_limit": http.concurrency_request_limit,
        },
        "stream": {"host": config.stream.host, "port": config.stream.port},
        "state": {
            "triggers_enabled": config.state.triggers_enabled,
            "max_value_bytes": config.state.max_value_bytes,
        },
        "queue": {
            "queue_configs": {
                name: {
                    "max_retries": queue.max_retries,
                    "concurrency": queue.concurrency,
                    "type": queue.type,
                    "message_group_field": queue.message_group_field,
                    "backoff_ms": queue.backoff_ms,
                }
                for name, queue in config.queues.items()
            },
            "adapter": {
                "name": "builtin",
                "config": {
                    "max_attempts": topics.max_attempts,
                    "backoff_ms": topics.backoff_ms,
                    "concurrency": topics.concurrency,
                    "mode": topics.mode,
                },
            },
        },
    }


def without_places(config: Config) -> Config:
    return replace(
        config, source=None, queues={name: replace(queue, line=None) for name, queue in config.queues.items()}
    )


def parse(text: str, env: dict[str, str] | None = None) -> Config:
    return parse_config(text, source="c.yaml", env=env or {}, load=read_document)


@given(configs, st.permutations(["http", "stream", "state", "queue"]), st.booleans(), st.booleans())
def test_a_valid_configuration_is_read_as_it_was_written(
    config: Config, order: list[str], is_prefixed: bool, is_flow: bool
) -> None:
    sections = as_plain(config)
    workers = [{"name": f"iii-{kind}" if is_prefixed else kind, "config": sections[kind]} for kind in order]
    text = yaml.safe_dump({"workers": workers}, default_flow_style=is_flow)
    assert without_places(parse(text)) == config


@given(configs)
def test_a_configuration_is_the_same_when_its_numbers_come_from_the_environment(config: Config) -> None:
    """Each integer as `${V0}`, `${V1:0}`, ...: expansion happens before YAML gives types."""
    env: dict[str, str] = {}

    def to_variables(value: object) -> object:
        if isinstance(value, dict):
            return {key: to_variables(item) for key, item in value.items()}
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        name = f"V{len(env)}"
        env[name] = str(value)
        return f"${{{name}}}" if len(env) % 2 else f"${{{name}:0}}"

    workers = [{"name": kind, "config": to_variables(section)} for kind, section in as_plain(config).items()]
    text = yaml.safe_dump({"workers": workers}).replace("'$", "$").replace("}'", "}")
    assert without_places(parse(text, env)) == config


@given(st.text())
def test_a_text_without_references_is_not_touched(value: str) -> None:
    text = yaml.safe_dump({"a": value.replace("${", "")})
    expansion = expand(text, source="c", env={"a": "b"}, load=read_document)
    assert expansion.document == read_document(text, source="c")


@given(words, st.none() | words, st.none() | words)
def test_a_set_variable_wins_over_the_default_and_nothing_is_a_problem(
    before: str, default: str | None, value: str | None
) -> None:
    reference = "${V}" if default is None else f"${{V:{default}}}"
    env = {} if value is None else {"V": value}
    expansion = expand(f"key: '{before}{reference}'", source="c", env=env, load=read_document)
    expected = value if value is not None else default
    if expected is None:
        assert [problem.line for problem in expansion.problems] == [1]
    else:
        assert expansion.problems == ()
        assert expansion.document.value == {"key": before + expected}


@given(st.text(alphabet=st.sampled_from("a1 #:,{}[]'\"&*!|>-?%@`\\\n\t"), max_size=12), st.sampled_from(["", "'", '"']))
@settings(max_examples=300)
@example("1, b: 2", "")
@example("[1]", "")
def test_a_value_stays_in_its_place_or_is_refused(value: str, quote: str) -> None:
    """Whatever the value: its neighbours are untouched, and a value that is taken is taken whole."""
    text = f"- {{before: 1, key: {quote}${{V}}{quote}, after: 2}}\n- last\n"
    expansion = expand(text, source="c", env={"V": value}, load=read_document)
    document = expansion.document.value
    assert isinstance(document, list)
    assert len(document) == 2
    assert document[1] == "last"
    assert list(document[0]) == ["before", "key", "after"]
    assert (document[0]["before"], document[0]["after"]) == (1, 2)
    if expansion.problems:
        assert expansion.tainted == {(0, "key")}
    elif isinstance(document[0]["key"], list | dict):
        assert value.lstrip()[0] in "[{"
    else:
        assert "".join(expansion.document.texts[0, "key"].split()) == "".join(value.split())


@given(st.text(alphabet=st.sampled_from("ab${}:\n"), max_size=40))
def test_references_are_where_they_say(text: str) -> None:
    for ref in find_references(text):
        assert text[ref.start :].startswith(ref.text)
        assert text[: ref.start].count("\n") == ref.line - 1
        assert "\n" not in ref.text


@given(
    st.text()
    | st.text(alphabet=st.sampled_from("workers:name -{}[]'\"&*!|>?%@#$\\Ux0\n\t<~=,"), max_size=60)
    | st.builds("workers:\n  - name: {}\n    config: {}".format, words, st.text(max_size=30))
)
@settings(max_examples=400)
@example("a: '\\U99999999'")
@example('a: "\\UFFFFFFFF"')
@example("%TAG ! tag:x,2000:\n--- !<tag:yaml.org,2002:int> x")
def test_any_text_is_a_configuration_or_a_config_error(text: str) -> None:
    try:
        config = parse(text, {"a": "1"})
    except ConfigError as error:
        error.message.encode()
    else:
        assert "default" in config.queues


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("port", "host", "config", "name", "cors", "adapter", "queue_configs", "type", "a")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from(("http", "stream", "state", "queue", "cron", "pubsub", "exec")), plain)
def test_any_settings_of_a_section_are_valid_or_a_config_error(name: str, settings_of_section: object) -> None:
    text = yaml.safe_dump({"workers": [{"name": name, "config": settings_of_section}]})
    try:
        parse(text)
    except ConfigError as error:
        for problem in error.problems:
            assert problem.line is not None
            assert problem.key.startswith("workers[0]")
