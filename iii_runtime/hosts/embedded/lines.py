"""One line per event: readable for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TextIO

_LOGGERS = ("iii_runtime", "iii.logger")
_AREAS = {"iii.logger": "function"}
_HIDDEN = frozenset({"stack", "service", "trace_id", "span_id"})
_DEAD_LETTER = ("iii_runtime.queue", "dead letter")
_YELLOW, _RED, _PLAIN = "\x1b[33m", "\x1b[31m", "\x1b[0m"


class ReadableLine(logging.Formatter):
    """`12:00:01.250 WARN  queue     attempt failed  function_id=orders::ship attempt=1 ...`.

    Args:
        is_coloured: Whether warnings and errors are marked, for a terminal.
        letter_command: The command that shows a dead letter, without its receipt; the line that tells of one ends with
            it.
    """

    def __init__(self, *, is_coloured: bool = False, letter_command: str | None = None) -> None:
        super().__init__()
        self._is_coloured = is_coloured
        self._letter_command = letter_command

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a stack follows indented."""
        moment = datetime.fromtimestamp(record.created, UTC).astimezone()
        fields: dict[str, object] = dict(getattr(record, "iii", {}))
        area = _AREAS.get(record.name, record.name.rpartition(".")[2])
        shown = " ".join(f"{name}={_short(value)}" for name, value in fields.items() if name not in _HIDDEN)
        time = f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"
        line = f"{time} {self._level(record)} {area:<8} {record.getMessage()}"
        line = f"{line}  {shown}" if shown else line
        if self._letter_command is not None and (record.name, record.msg) == _DEAD_LETTER:
            line += f"  show it: {self._letter_command} {fields.get('message_receipt_id')}"
        stack = fields.get("stack") or (self.formatException(record.exc_info) if record.exc_info else None)
        if stack:
            line += "".join(f"\n    {text}" for text in str(stack).rstrip().splitlines())
        return line.encode("utf-8", "backslashreplace").decode("utf-8")

    def _level(self, record: logging.LogRecord) -> str:
        word = f"{'WARN' if record.levelno == logging.WARNING else record.levelname:<5}"
        if not self._is_coloured or record.levelno < logging.WARNING:
            return word
        return f"{_YELLOW if record.levelno < logging.ERROR else _RED}{word}{_PLAIN}"


class JsonLine(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object."""
        entry: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "area": _AREAS.get(record.name, record.name.rpartition(".")[2]),
            "message": record.getMessage(),
            **getattr(record, "iii", {}),
        }
        if record.exc_info:
            entry["stack"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def show_lines(
    stream: TextIO, *, formatter: logging.Formatter | None = None, level: int = logging.INFO
) -> logging.Handler:
    """Write the runtime's and the functions' log lines to `stream`; returns the handler, for `hide_lines`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter or ReadableLine())
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.addHandler(handler)
        logger.propagate = False
    return handler


def hide_lines(handler: logging.Handler) -> None:
    """Undo `show_lines`."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.removeHandler(handler)
        logger.propagate = True


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    text = text.replace("\n", " ")
    shown = text if len(text) <= 160 else f"{text[:159]}…"
    return f'"{shown}"' if " " in shown and isinstance(value, str) else shown
