"""From the sections of a file to the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from iii_runtime.core.config.document import KeyPath
from iii_runtime.core.config.entries import Entry, read_entries, read_named, refuse_other_keys
from iii_runtime.core.config.findings import Findings
from iii_runtime.core.config.schema import (
    SECTIONS,
    AwsSection,
    BuiltinQueueAdapter,
    CorsSection,
    HttpSection,
    QueueEntry,
    RootSection,
    Section,
    StateSection,
    StreamSection,
)
from iii_runtime.core.config.validate import validate
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
    is_production,
)
from iii_runtime.core.queue import QUEUE_NAME_RULE, is_queue_name

_GROUP_FIELD = "message_group_field"


def read_config(root: object, findings: Findings, *, source: str) -> Config:
    """Return the configuration; it is meaningless if the findings then have problems."""
    if root is None:
        findings.problem((), "the file is empty; expected a list `workers:`")
        return Config()
    if not isinstance(root, dict):
        findings.mismatch((), expected="a mapping with a list `workers:`", found=root)
        return Config()
    if validate(RootSection, root, (), findings) and not root.keys() & {"workers", "modules"}:
        findings.problem((), "expected a list `workers:` (or, in the older form, `modules:`), found neither")
    reader = _SectionReader(findings)
    for entry in read_entries(root, findings):
        reader.read(entry)
    return Config(
        http=reader.http,
        stream=reader.stream,
        state=reader.state,
        queues=reader.queues,
        topics=reader.topics,
        aws=reader.aws,
        notices=findings.notices,
        source=source,
    )


class _SectionReader:
    """Reads the entries one after the other. What no entry mentions keeps its default."""

    def __init__(self, findings: Findings) -> None:
        self.http = HttpConfig()
        self.stream = StreamConfig()
        self.state = StateConfig()
        self.queues: dict[str, QueueConfig] = {}
        self.topics = TopicDefaults()
        self.aws = AwsConfig()
        self._findings = findings
        self._declared: dict[str, KeyPath] = {}

    def read(self, entry: Entry) -> None:
        if entry.kind != "queue":
            self._declare(f"section '{entry.kind}'", entry.path)
        path = (*entry.path, "config")
        section = validate(SECTIONS[entry.kind].model, entry.config, path, self._findings)
        self._take(section, self._findings.line_of(entry.path))
        if isinstance(entry.config, dict):
            self._read_adapter(entry.kind, entry.config.get("adapter"), (*path, "adapter"))
            if entry.kind == "queue":
                self._read_queues(entry.config.get("queue_configs"), (*path, "queue_configs"))

    def _take(self, section: Section | None, line: int) -> None:
        match section:
            case HttpSection():
                self.http = _http_config(section, line)
            case StreamSection():
                self.stream = StreamConfig(host=section.host, port=section.port, auth=section.auth, line=line)
            case StateSection():
                self.state = StateConfig(
                    triggers_enabled=section.triggers_enabled, max_value_bytes=section.max_value_bytes
                )
            case AwsSection():
                self.aws = _aws_config(section, line)
            case BuiltinQueueAdapter():
                self.topics = TopicDefaults(
                    max_attempts=section.max_attempts,
                    backoff_ms=section.backoff_ms,
                    concurrency=section.concurrency,
                    mode=section.mode,
                )
            case _:
                pass  # invalid, or without settings of its own

    def _read_adapter(self, kind: str, item: object, path: KeyPath) -> None:
        adapters = SECTIONS[kind].adapters
        if item is None or not adapters:
            return
        if kind == "queue":
            self._declare("adapter of the queues", path)
        key = "class" if isinstance(item, dict) and "class" in item else "name"
        if (named := read_named(item, path, key, self._findings)) is None:
            return
        name, settings = named
        refuse_other_keys(item, path, key, self._findings)
        # The older form has class names such as `modules::queue::BuiltinQueueAdapter`.
        short = name.rpartition("::")[2].lower()
        adapter = next((known for known in adapters if short.startswith(known)), None)
        if adapter is None:
            expected = " or ".join(f"'{known}'" for known in adapters)
            self._findings.mismatch((*path, key), expected=expected, found=name)
        elif (model := adapters[adapter]) is None:
            message = f"'{name}' has no effect here: the host brings its own store and queues"
            self._findings.notice(f"adapter_without_effect:{adapter}", (*path, key), message)
        else:
            self._take(validate(model, settings, (*path, "config"), self._findings), self._findings.line_of(path))

    def _read_queues(self, queues: object, path: KeyPath) -> None:
        if not isinstance(queues, dict):
            return  # absent, or reported with the section
        for name, value in queues.items():
            place = (*path, name)
            self._declare(f"queue '{name}'", place)
            if not is_queue_name(name):
                self._findings.mismatch(place, expected=QUEUE_NAME_RULE, found=name)
            if isinstance(value, dict):
                self._check_group(value, place)
            if entry := validate(QueueEntry, value, place, self._findings):
                self.queues[name] = QueueConfig(
                    name=name,
                    max_retries=entry.max_retries,
                    concurrency=entry.concurrency,
                    type=entry.type,
                    message_group_field=entry.message_group_field if entry.type == "fifo" else None,
                    backoff_ms=entry.backoff_ms,
                    line=self._findings.line_of(place),
                )

    def _check_group(self, value: Mapping[str, object], path: KeyPath) -> None:
        """Check apart from the model, so that a mistake in another key does not hide this one."""
        is_fifo, field = value.get("type") == "fifo", value.get(_GROUP_FIELD)
        if is_fifo and field is None:
            self._findings.mismatch(
                (*path, _GROUP_FIELD), expected="the name of a payload field (a fifo queue needs one)", found=None
            )
        elif field is not None and not is_fifo:
            message = "has no effect on a standard queue; set `type: fifo` if the messages need an order"
            self._findings.notice("group_field_without_fifo", (*path, _GROUP_FIELD), message)

    def _declare(self, what: str, path: KeyPath) -> None:
        first = self._declared.setdefault(what, path)
        if first != path:
            line = self._findings.line_of(first)
            self._findings.problem(path, f"{what} is declared twice; the first one is on line {line}")


def _http_config(section: HttpSection, line: int) -> HttpConfig:
    return HttpConfig(
        host=section.host,
        port=section.port,
        default_timeout_ms=section.default_timeout,
        concurrency_request_limit=section.concurrency_request_limit,
        cors=None if section.cors is None else _cors_config(section.cors),
        auth=section.auth,
        jwt=None if section.jwt is None else JwtConfig(issuer=section.jwt.issuer, audience=tuple(section.jwt.audience)),
        run_routes=section.run_routes,
        line=line,
    )


def _aws_config(section: AwsSection, line: int) -> AwsConfig:
    defaults = section.over(StageConfig(), production=False)
    stages = {name: stage.over(defaults, production=is_production(name)) for name, stage in section.stages.items()}
    return AwsConfig(app=section.app, defaults=defaults, stages=stages, line=line)


def _cors_config(section: CorsSection) -> CorsConfig:
    return CorsConfig(
        allowed_origins=_unless_any(section.allowed_origins),
        allowed_methods=_unless_any([method.upper() for method in section.allowed_methods]),
    )


def _unless_any(items: list[str]) -> tuple[str, ...]:
    """`*` among others means any, and any is the empty list."""
    return () if "*" in items else tuple(items)
