"""`${VAR}` and `${VAR:default}`: what is replaced, and that a value cannot rewrite the file around it."""

from __future__ import annotations

import pytest

from iii_runtime.adapters.config_file import read_document
from iii_runtime.core.config import Config, ConfigError, parse_config

PORT = "workers:\n  - name: http\n    config: {port: %s, host: h}\n"
HOST = "workers:\n  - name: http\n    config:\n      host: %s\n      port: 1\n"
ORIGINS = "workers:\n  - name: http\n    config:\n      cors:\n        allowed_origins: %s\n"


def parse(text: str, **env: str) -> Config:
    return parse_config(text, source="c.yaml", env=env, load=read_document)


def lines_of(text: str, **env: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, **env)
    return caught.value.message.splitlines()


def test_the_default_is_used_without_the_variable() -> None:
    assert parse(PORT % "${P:3112}").http.port == 3112


def test_a_set_variable_wins_and_becomes_a_number_like_any_yaml() -> None:
    assert parse(PORT % "${P:3112}", P="9").http.port == 9


def test_a_set_but_empty_variable_wins_too() -> None:
    assert lines_of(PORT % "${P:3112}", P="") == [
        "c.yaml:3: workers[0].config.port: expected an integer, found nothing (from P)"
    ]


def test_a_default_may_be_empty_and_may_contain_colons() -> None:
    assert parse(HOST % "a${X:}b").http.host == "ab"
    assert parse(HOST % "${X:fe80::1}").http.host == "fe80::1"


def test_a_default_may_be_a_list_in_the_text_of_the_file() -> None:
    config = parse(ORIGINS % "${X:[http://a, http://b]}")
    assert config.http.cors is not None
    assert config.http.cors.allowed_origins == ("http://a", "http://b")


def test_a_value_that_is_a_list_fills_its_place() -> None:
    config = parse(ORIGINS % "${X:[]}", X="[http://a, 'http://b']")
    assert config.http.cors is not None
    assert config.http.cors.allowed_origins == ("http://a", "http://b")


def test_a_variable_may_be_part_of_a_text_or_of_a_key() -> None:
    text = "workers: [{name: queue, config: {queue_configs: {'${STAGE}-orders': {max_retries: 1}}}}]"
    assert "dev-orders" in parse(text, STAGE="dev").queues


def test_a_missing_variable_is_a_problem_at_its_line_and_key() -> None:
    assert lines_of(PORT % "${P}") == [
        "c.yaml:3: workers[0].config.port: the environment variable P is not set, and ${P} has no default"
    ]


@pytest.mark.parametrize("comment", ["# ${GONE}", "port: 1 # ${GONE} ${", "# ${a b} ${X:${Y}}"])
def test_a_reference_in_a_comment_needs_no_value(comment: str) -> None:
    assert parse(f"workers: []\n{comment}").queues == Config().queues


def test_a_line_break_in_a_value_cannot_leave_a_comment() -> None:
    assert parse("# ${X}\nworkers: []", X="\nport: 1").notices == ()


def test_a_hash_inside_quotes_is_no_comment() -> None:
    assert lines_of(HOST % "'a #${GONE}'")[0].endswith("GONE is not set, and ${GONE} has no default")


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("'${P'", "${P: `${` without its `}` on the same line"),
        ("${1P}", "${1P}: expected `${NAME}` or `${NAME:default}`; a name has letters, digits and `_`"),
        ("${}", "${}: expected `${NAME}` or `${NAME:default}`; a name has letters, digits and `_`"),
        ("'${A:${B}}'", "${A:${B}: references cannot be nested"),
    ],
)
def test_what_looks_like_a_reference_and_is_none_is_a_problem(reference: str, why: str) -> None:
    (line,) = lines_of(HOST % reference, P="1", A="1", B="1")
    assert line.startswith("c.yaml:4: workers[0].config.host: ")
    assert why in line


@pytest.mark.parametrize("value", ["1\n", "a\r", "\x00", "a\x85b", "\u2028", "\ud800"])
def test_a_value_with_a_line_break_or_control_character_is_refused(value: str) -> None:
    """So the lines of every other problem stay right."""
    assert lines_of(HOST % "${X}", X=value) == [
        "c.yaml:4: workers[0].config.host: the value of X contains a line break or a control character"
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (PORT % "${X}", "1 # rest"),
        (PORT % "${X}", "1, default_timeout: 5"),
        (PORT % "${X}", "1, host: other"),
        (PORT % "${X}", "1}, {name: queue"),
        (PORT % "${X}", "[1], default_timeout: 5"),
        (PORT % "${X}", "!!str 1"),
        (PORT % "${X}", "&anchor 1"),
        (PORT % "${X}", "'1'"),
        (HOST % "${X}", "a: b"),
        (HOST % "${X}", "- a"),
        (HOST % "${X}", "|"),
        (HOST % "${X}", "*alias"),
        (HOST % "a${X}", " # b"),
        (HOST % "'${X}'", "a' #"),
        (HOST % '"${X}"', "C:\\new"),
        (HOST % '"${X}"', '"'),
        (ORIGINS % "[${X}]", "http://a, http://b"),
        (ORIGINS % "\n          - ${X}", "a: b"),
    ],
)
def test_a_value_cannot_change_the_yaml_around_it(text: str, value: str) -> None:
    """The value itself is not printed: it may be a secret."""
    (line,) = lines_of(text, X=value)
    assert line.endswith(": the value of X is not one YAML value here and would change the text around ${X}")
    assert line.startswith("c.yaml:")
    assert "workers[0].config" in line


def test_a_value_that_breaks_the_yaml_hides_no_other_problem() -> None:
    lines = lines_of(PORT.replace("host: h", "host: ''") % "${X}", X="{")
    assert len(lines) == 2
    assert "workers[0].config.host" in lines[1]


def test_values_that_are_harmful_only_together_are_refused() -> None:
    lines = lines_of(HOST % "a${X}${Y}", X=" ", Y="# b")
    assert [line.split(": ")[2].split(" is")[0] for line in lines] == ["the value of X", "the value of Y"]


def test_values_that_are_harmful_only_together_are_found_next_to_one_that_is_harmful_alone() -> None:
    text = "workers: [{name: http, config: {host: a${X}${Y}\n, port: ${Z}}}]"
    lines = lines_of(text, X=" ", Y="# b", Z="{")
    assert sorted(line.split(": ")[2].split(" is")[0] for line in lines) == [f"the value of {v}" for v in "XYZ"]


def test_a_list_cannot_be_put_together_from_two_values() -> None:
    """Alone in its place means alone: `[a]` and nothing else."""
    assert len(lines_of(ORIGINS % "${X}${Y}", X="['http://a'", Y=", 'http://b']")) == 1
    assert len(lines_of(ORIGINS % "${X}${Y}", X="[]", Y="")) == 1


def test_a_value_may_contain_what_has_no_meaning_in_its_place() -> None:
    for value in ("a#b", "p:w", "x'y", "$", "${X}", "a b"):
        text = "workers: [{name: state, config: {adapter: {name: redis, config: {redis_url: '%s'}}}}]"
        assert parse(text % "${X}" if "'" not in value else text.replace("'%s'", "${X}"), X=value).notices


def test_a_wrong_value_names_the_variable_it_came_from() -> None:
    assert lines_of(PORT % "${P:1}", P="abc") == [
        "c.yaml:3: workers[0].config.port: expected an integer, found 'abc' (from P)"
    ]
