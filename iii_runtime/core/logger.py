"""The structured logger of handlers, with iii's methods. It writes to the Python logger `iii.logger`."""

from __future__ import annotations

import logging

from iii_runtime.core.invocation import current_invocation

LOGGER_NAME = "iii.logger"


class Logger:
    """Structured logging inside a function: each line carries the function, receipt, attempt and trace it belongs to.

    Compatible with iii: `info`, `warn`, `error`, `debug`, each with a message and optional data.

    Args:
        trace_id: Overrides the trace id of the current invocation, whose span id is then left out.
        service_name: Shown before the message, as `[name] message`, and carried as `service`, which is the function id
            by default.
        span_id: Overrides the span id of the current invocation.
    """

    def __init__(
        self, trace_id: str | None = None, service_name: str | None = None, span_id: str | None = None
    ) -> None:
        self._trace_id = trace_id
        self._service_name = service_name
        self._span_id = span_id

    def info(self, message: str, data: object = None) -> None:
        """Log at severity INFO."""
        self._log(logging.INFO, message, data)

    def warn(self, message: str, data: object = None) -> None:
        """Log at severity WARN."""
        self._log(logging.WARNING, message, data)

    def error(self, message: str, data: object = None) -> None:
        """Log at severity ERROR."""
        self._log(logging.ERROR, message, data)

    def debug(self, message: str, data: object = None) -> None:
        """Log at severity DEBUG."""
        self._log(logging.DEBUG, message, data)

    def _log(self, level: int, message: str, data: object) -> None:
        logger = logging.getLogger(LOGGER_NAME)
        if not logger.isEnabledFor(level):
            return
        invocation = current_invocation()
        fields: dict[str, object] = {
            "service": self._service_name or (invocation.function_id if invocation else None),
            "function_id": invocation.function_id if invocation else None,
            "message_receipt_id": invocation.message_receipt_id if invocation else None,
            "attempt": invocation.attempt if invocation else None,
            "trace_id": self._trace_id or (invocation.trace_id if invocation else None),
            "span_id": self._span_id or (invocation.span_id if invocation and not self._trace_id else None),
            "data": data,
        }
        text = f"[{self._service_name}] {message}" if self._service_name else message
        logger.log(level, "%s", text, extra={"iii": {name: v for name, v in fields.items() if v is not None}})
