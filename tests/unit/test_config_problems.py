"""Bad files: each mistake is one problem with its line and key, and all of them come at once."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from iii_runtime.adapters.config_file import MAX_BYTES, load_config, read_document
from iii_runtime.core.config import ConfigError, ConfigProblem, parse_config
from iii_runtime.core.errors import IiiError


def problems_of(text: str, **env: str) -> tuple[ConfigProblem, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_config(dedent(text), source="c.yaml", env=env, load=read_document)
    return caught.value.problems


def lines_of(text: str, **env: str) -> list[str]:
    return [str(problem) for problem in problems_of(text, **env)]


QUEUE = "workers:\n  - name: queue\n    config:\n      queue_configs:\n        a: {%s}\n"
IN_QUEUE = "c.yaml:5: workers[0].config.queue_configs.a"
SECTION = "workers:\n  - name: %s\n    config: {%s}\n"
IN_SECTION = "c.yaml:3: workers[0].config"

BAD = [
    # queues
    (QUEUE % "concurrency: 0", f"{IN_QUEUE}.concurrency: expected an integer >= 1, found 0"),
    (QUEUE % "concurrency: true", f"{IN_QUEUE}.concurrency: expected an integer, found true"),
    (QUEUE % "concurrency: '5'", f"{IN_QUEUE}.concurrency: expected an integer, found '5'"),
    (QUEUE % "concurrency: 1.0", f"{IN_QUEUE}.concurrency: expected an integer, found 1.0"),
    (QUEUE % "concurrency: 0x10", f"{IN_QUEUE}.concurrency: expected an integer, found '0x10'"),
    (QUEUE % "concurrency: 1:30", f"{IN_QUEUE}.concurrency: expected an integer, found '1:30'"),
    (QUEUE % "max_retries: -1", f"{IN_QUEUE}.max_retries: expected an integer >= 0, found -1"),
    (
        QUEUE % "max_retries: 4294967296",
        f"{IN_QUEUE}.max_retries: expected an integer <= 4294967295, found 4294967296",
    ),
    (QUEUE % "max_retries:", f"{IN_QUEUE}.max_retries: expected an integer, found nothing"),
    (QUEUE % "backoff_ms: [1]", f"{IN_QUEUE}.backoff_ms: expected an integer, found a list"),
    (QUEUE % "type: lifo", f"{IN_QUEUE}.type: expected 'standard' or 'fifo', found 'lifo'"),
    (
        QUEUE % "type: fifo",
        f"{IN_QUEUE}.message_group_field: expected the name of a payload field (a fifo queue needs one), found nothing",
    ),
    (
        QUEUE % "type: fifo, message_group_field: ''",
        f"{IN_QUEUE}.message_group_field: expected a text that is not empty, found ''",
    ),
    (QUEUE % "max_priority: 256", f"{IN_QUEUE}.max_priority: expected an integer <= 255, found 256"),
    (QUEUE % "maxRetries: 3", f"{IN_QUEUE}.maxRetries: unknown key; did you mean `max_retries`?"),
    (
        QUEUE % "max_retries: 3, max_retries: 4",
        f"{IN_QUEUE}.max_retries: this key stands here twice; the first one is on line 5",
    ),
    (
        SECTION % ("queue", "queue_configs: {a: }"),
        f"{IN_SECTION}.queue_configs.a: expected a mapping, found nothing",
    ),
    (SECTION % ("queue", "queue_configs: [a]"), f"{IN_SECTION}.queue_configs: expected a mapping, found a list"),
    (
        SECTION % ("queue", "queue_configs: {5: {}}"),
        f"{IN_SECTION}.queue_configs.5: a key has to be a text, found 5; put it in quotes",
    ),
    (
        SECTION % ("queue", "queue_configs: {'a/b': {}}"),
        (
            f"{IN_SECTION}.queue_configs.a/b: expected a queue name of 1 to 80 letters, digits, '.', '_' or '-' "
            "that starts with a letter or digit, found 'a/b'"
        ),
    ),
    (
        SECTION % ("queue", 'queue_configs: {"a\\0b": {}}'),
        (
            f"{IN_SECTION}.queue_configs.'a\\x00b': expected a queue name of 1 to 80 letters, digits, '.', '_' or '-' "
            "that starts with a letter or digit, found 'a\\x00b'"
        ),
    ),
    (
        "workers:" + 2 * "\n- {name: queue, config: {queue_configs: {a: {}}}}",
        "c.yaml:3: workers[1].config.queue_configs.a: queue 'a' is declared twice; the first one is on line 2",
    ),
    # other sections
    (SECTION % ("http", "port: 65536"), f"{IN_SECTION}.port: expected an integer <= 65535, found 65536"),
    (SECTION % ("http", "host: ''"), f"{IN_SECTION}.host: expected a host name or an address, found ''"),
    (SECTION % ("http", "prot: 1"), f"{IN_SECTION}.prot: unknown key; did you mean `port`?"),
    (
        SECTION % ("http", "cors: {allowed_origin: []}"),
        f"{IN_SECTION}.cors.allowed_origin: unknown key; did you mean `allowed_origins`?",
    ),
    (
        SECTION % ("http", "cors: {allowed_origins: ['http://a', 'http://b/']}"),
        (
            f"{IN_SECTION}.cors.allowed_origins[1]: expected an origin such as 'http://localhost:3113', "
            "without a path, found 'http://b/'"
        ),
    ),
    (
        SECTION % ("http", "middleware: [{function_id: auth}]"),
        (
            f"{IN_SECTION}.middleware: middleware is not supported yet, and routes would be open without it; "
            "remove it and check the request in the functions"
        ),
    ),
    (
        SECTION % ("stream", "auth_function: stream.auth"),
        (
            f"{IN_SECTION}.auth_function: stream authorization is not supported yet, and every client that reaches the "
            "port could join; remove it only if that is acceptable, and keep `host` on the loopback address"
        ),
    ),
    (
        SECTION % ("state", "triggers_enabled: yes"),
        f"{IN_SECTION}.triggers_enabled: expected true or false, found 'yes'",
    ),
    (SECTION % ("state", "max_value_bytes: 0"), f"{IN_SECTION}.max_value_bytes: expected an integer >= 1, found 0"),
    (SECTION % ("cron", "timezone: UTC"), f"{IN_SECTION}.timezone: unknown key; known here: adapter"),
    (
        SECTION % ("state", "adapter: {name: sqlite}"),
        f"{IN_SECTION}.adapter.name: expected 'kv' or 'redis' or 'bridge', found 'sqlite'",
    ),
    (
        SECTION % ("queue", "adapter: {name: builtin, config: {mode: lifo}}"),
        f"{IN_SECTION}.adapter.config.mode: expected 'concurrent' or 'fifo', found 'lifo'",
    ),
    (
        SECTION % ("pubsub", "adapter: {name: local, config: {a: 1}}"),
        f"{IN_SECTION}.adapter.config.a: unknown key; known here: none",
    ),
    (
        "workers:\n  - name: http\n  - name: iii-http",
        "c.yaml:3: workers[1]: section 'http' is declared twice; the first one is on line 2",
    ),
    # the list of workers
    ("workers:\n  - name: http\n    port: 1", "c.yaml:3: workers[0].port: unknown key; known here: name, config"),
    ("workers:\n  - http", "c.yaml:2: workers[0]: expected a mapping with `name` and `config`, found 'http'"),
    ("workers:\n  - config: {}", "c.yaml:2: workers[0].name: expected a text that is not empty, found nothing"),
    (
        "workers:\n  - class: modules::api::RestApiModule",
        "c.yaml:2: workers[0].class: expected `name` here, found `class` of the other form of this file",
    ),
    (
        "modules: []\nworkers: [{name: http}]",
        "c.yaml:2: workers: `modules:` and `workers:` with names are two forms of this file; keep one of them",
    ),
    ("workers:", "c.yaml:1: workers: expected a list, found nothing"),
    ("worker: []", "c.yaml:1: worker: unknown key; did you mean `workers`?"),
    ("port: true\nworkers: []", "c.yaml:1: port: expected an integer, found true"),
    ("port: 1", "c.yaml:1: expected a list `workers:` (or, in the older form, `modules:`), found neither"),
    # the file as a whole
    ("", "c.yaml:1: the file is empty; expected a list `workers:`"),
    ("# only a comment", "c.yaml:1: the file is empty; expected a list `workers:`"),
    ("[]", "c.yaml:1: expected a mapping with a list `workers:`, found a list"),
    ("workers:\n\t- name: http", "c.yaml:2: not valid YAML: a tab before a value; YAML is indented with spaces"),
    ("workers: []\n---\na: 1", "c.yaml:2: expected one YAML document, found another one after `---`"),
    ("workers: []\nport: a: b", "c.yaml:2: not valid YAML: mapping values are not allowed here"),
    ("workers: []\n# \0", "c.yaml:2: character U+0000 is not allowed in YAML"),
    ("workers: !!python/tuple []", "c.yaml:1: YAML tags such as !!python/tuple are not supported"),
    ('workers: ["\\ud800"]', "c.yaml:1: a surrogate such as \\ud800 is not a character"),
    ("workers: []\n<<: {a: 1}", "c.yaml:2: <<: merge keys are not supported; write the keys out"),
    ("workers: []\n? [a]\n: b", "c.yaml:2: a key has to be a text, found a list or mapping"),
    ("workers: &a [*a]", "c.yaml:1: more than 10000 values or 40 levels, counting every use of an alias"),
]


@pytest.mark.parametrize(("text", "expected"), BAD)
def test_a_mistake_is_one_problem_with_its_line_and_key(text: str, expected: str) -> None:
    assert lines_of(text) == [expected]


def test_all_problems_come_at_once_in_the_order_of_the_lines() -> None:
    text = """\
        workers:
          - name: http
            config: {port: ${PORT}, host: ''}
          - name: queue
            config:
              queue_configs:
                a: {concurrency: 0, type: fifo, retries: 1}
                '-': {}
              queues: {}
        """
    found = [(problem.line, problem.key) for problem in problems_of(text)]
    queues = "workers[1].config.queue_configs"
    assert sorted(found) == sorted(
        [
            (3, "workers[0].config.port"),
            (3, "workers[0].config.host"),
            (7, f"{queues}.a.concurrency"),
            (7, f"{queues}.a.message_group_field"),
            (7, f"{queues}.a.retries"),
            (8, f"{queues}.-"),
            (9, "workers[1].config.queues"),
        ]
    )
    assert [line for line, _ in found] == [3, 3, 7, 7, 7, 8, 9]


def test_the_error_is_typed_and_its_text_has_one_line_for_each_problem() -> None:
    with pytest.raises(IiiError) as caught:
        parse_config("workers: [1, 2]", source="c.yaml", env={}, load=read_document)
    error = caught.value
    assert isinstance(error, ConfigError)
    assert error.code == "config_invalid"
    assert error.message.splitlines() == [str(problem) for problem in error.problems]


def test_a_mismatch_says_what_was_expected_and_found() -> None:
    (problem,) = problems_of(QUEUE % "concurrency: 0")
    assert (problem.expected, problem.found) == ("an integer >= 1", "0")


def test_nested_aliases_cannot_exhaust_the_memory() -> None:
    levels = "\n".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 10))
    (problem,) = problems_of(f"l0: &l0 [x]\n{levels}")
    assert "more than 10000 values" in problem.message


def test_deep_nesting_cannot_exhaust_the_stack() -> None:
    (problem,) = problems_of("workers: " + "[" * 5000)
    assert problem.message == "not valid YAML: nested deeper than 40 levels"


def test_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    with pytest.raises(ConfigError) as caught:
        load_config(path, {})
    assert caught.value.message == f"{path}: the file does not exist"


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the file cannot be read: Is a directory"):
        load_config(tmp_path, {})


def test_a_binary_file_is_a_problem_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"workers: []\n\xff\xfe")
    with pytest.raises(ConfigError) as caught:
        load_config(path, {})
    assert caught.value.message == f"{path}:2: not UTF-8 text (byte 0xFF)"


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="the file is larger than"):
        load_config(path, {})


def test_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbfworkers:\r\n  - name: http\r\n    config: {port: ${P}}\r\n")
    assert load_config(path, {"P": "7"}).http.port == 7
    with pytest.raises(ConfigError, match=r"c\.yaml:3: "):
        load_config(path, {})


def test_the_example_in_the_documentation_is_what_comes_out() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    section = page.split("## Problems")[1]
    text = section.split("```yaml\n")[1].split("```")[0]
    printed = section.split("```text\n")[1].split("```")[0]
    with pytest.raises(ConfigError) as caught:
        parse_config(text, source="iii-config.yaml", env={"SHIP_BACKOFF": "2s"}, load=read_document)
    assert caught.value.message == printed.strip()
