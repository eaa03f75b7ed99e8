"""One line per event: readable for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TextIO

_LOGGERS = ("iii_runtime", "iii.logger")
_AREAS = {"iii.logger": "function"}
_HIDDEN = frozenset({"stack", "service", "trace_id", "span_id"})


class ReadableLine(logging.Formatter):
    """`12:00:01.250 WARN  queue     attempt failed  function_id=orders::ship attempt=1 ...`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a stack follows indented."""
        moment = datetime.fromtimestamp(record.created, UTC).astimezone()
        fields: dict[str, object] = dict(getattr(record, "iii", {}))
        area = _AREAS.get(record.name, record.name.rpartition(".")[2])
        shown = " ".join(f"{name}={_short(value)}" for name, value in fields.items() if name not in _HIDDEN)
        level = "WARN" if record.levelno == logging.WARNING else record.levelname
        line = f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d} {level:<5} {area:<8} {record.getMessage()}"
        line = f"{line}  {shown}" if shown else line
        stack = fields.get("stack") or (self.formatException(record.exc_info) if record.exc_info else None)
        if stack:
            line += "".join(f"\n    {text}" for text in str(stack).rstrip().splitlines())
        return line.encode("utf-8", "backslashreplace").decode("utf-8")


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


def show_lines(stream: TextIO, *, as_json: bool = False, level: int = logging.INFO) -> logging.Handler:
    """Write the runtime's and the functions' log lines to `stream`; returns the handler, for `hide_lines`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLine() if as_json else ReadableLine())
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
