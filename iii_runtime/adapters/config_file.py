"""Reads `iii-config.yaml` from disk. The only module that knows YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from iii_runtime.core.config import Config, ConfigError, ConfigProblem, Document, KeyPath, parse_config
from iii_runtime.core.config.document import render_key

MAX_BYTES = 256 * 1024
MAX_DEPTH = 40
MAX_VALUES = 10_000
"""Values in one file, each use of an alias counted: a few lines of nested aliases can stand for billions."""

_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = {_TAG + kind for kind in ("null", "bool", "int", "float", "str", "timestamp", "value")}
# As in YAML 1.2 and in iii: `yes`, `010`, `0x1F`, `1_000` and `12:30` are texts, not booleans or numbers.
_BOOLEANS = {"true": True, "false": False}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
_SURROGATE = re.compile("[\ud800-\udfff]")
_FLOAT = re.compile(r"[-+]?[0-9]{1,30}(\.[0-9]{0,30})?([eE][-+]?[0-9]{1,3})?")


def load_config(path: Path | None, env: Mapping[str, str]) -> Config:
    """Return the configuration in the file, or the defaults when `path` is None.

    Args:
        path: The file; it has to exist.
        env: Variables for `${VAR}` and `${VAR:default}`.

    Raises:
        ConfigError: The file cannot be read or used; carries every problem.
    """
    if path is None:
        return Config()
    return parse_config(_read_text(path), source=str(path), env=env, load=read_document)


def read_document(text: str, *, source: str) -> Document:
    """Return the YAML document in `text` as plain data with its lines.

    Raises:
        ConfigError: The text is no YAML, or exceeds `MAX_DEPTH` or `MAX_VALUES`.
    """
    try:
        node = yaml.compose(text, Loader=_BoundedLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _failure(source, line, f"character U+{ord(text[error.position]):04X} is not allowed in YAML") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _failure(source, mark.line + 1 if mark else None, _describe(error)) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise _failure(source, None, f"not valid YAML: {error}") from None
    walk = _Walk(source)
    value = None if node is None else walk.build(node, (), 0)
    return Document(value=value, lines=walk.lines, texts=walk.texts, problems=tuple(walk.problems))


def _read_text(path: Path) -> str:
    source = str(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _failure(source, None, "the file does not exist") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _failure(source, None, f"the file cannot be read: {reason}") from None
    if len(content) > MAX_BYTES:
        raise _failure(source, None, f"the file is larger than {MAX_BYTES} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _failure(source, line, f"not UTF-8 text (byte 0x{content[error.start]:02X})") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _describe(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem or error.context)
    if "'\\t'" in problem:
        return "not valid YAML: a tab before a value; YAML is indented with spaces"
    if "another document" in problem:
        return "expected one YAML document, found another one after `---`"
    return f"not valid YAML: {problem}"


def _failure(source: str, line: int | None, message: str) -> ConfigError:
    return ConfigError([ConfigProblem(source=source, line=line, message=message)])


class _BoundedLoader(yaml.SafeLoader):
    """Stops before deep nesting exhausts the stack."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=self.get_mark())
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class _Walk:
    """Turns nodes into plain data and notes where each value stands."""

    def __init__(self, source: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.texts: dict[KeyPath, str] = {}
        self.problems: list[ConfigProblem] = []
        self._source = source
        self._values = 0

    def build(self, node: yaml.Node, path: KeyPath, depth: int) -> object:
        self.lines.setdefault(path, _line(node))
        self._values += 1
        if self._values > MAX_VALUES or depth > MAX_DEPTH:
            limits = f"{MAX_VALUES} values or {MAX_DEPTH} levels"
            raise _failure(self._source, _line(node), f"more than {limits}, counting every use of an alias")
        match node:
            case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
                return self._mapping(node, path, depth)
            case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
                return [self.build(item, (*path, index), depth + 1) for index, item in enumerate(node.value)]
            case yaml.ScalarNode() if node.tag in _SCALAR_TAGS:
                self.texts[path] = self._text(node)
                return _scalar(node)
            case _:
                tag = node.tag.replace(_TAG, "!!")
                raise _failure(self._source, _line(node), f"YAML tags such as {tag:.60} are not supported")

    def _mapping(self, node: yaml.MappingNode, path: KeyPath, depth: int) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            if key is None:
                continue
            place = (*path, key)
            if key in values:
                first = self.lines[place]
                self._problem(key_node, place, f"this key stands here twice; the first one is on line {first}")
                continue
            self.lines[place] = _line(key_node)
            values[key] = self.build(value_node, place, depth + 1)
        return values

    def _key(self, node: yaml.Node, path: KeyPath) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._problem(node, path, "a key has to be a text, found a list or mapping")
            return None
        if node.tag == _TAG + "merge":
            self._problem(node, (*path, node.value), "merge keys are not supported; write the keys out")
            return None
        key = self._text(node)
        if not isinstance(_scalar(node), str):
            shown = key or "nothing"
            self._problem(node, (*path, key), f"a key has to be a text, found {shown:.60}; put it in quotes")
        return key

    def _text(self, node: yaml.ScalarNode) -> str:
        if _SURROGATE.search(node.value):
            raise _failure(self._source, _line(node), "a surrogate such as \\ud800 is not a character")
        return str(node.value)

    def _problem(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        self.problems.append(
            ConfigProblem(source=self._source, line=_line(node), key=render_key(path), message=message)
        )


def _scalar(node: yaml.ScalarNode) -> object:
    kind, text = node.tag.removeprefix(_TAG), str(node.value)
    if kind == "null":
        return None
    if kind == "bool":
        return _BOOLEANS.get(text.lower(), text)
    if kind == "int" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "float" and _FLOAT.fullmatch(text):
        return float(text)
    return text


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
