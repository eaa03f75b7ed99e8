"""Queries: questions about a run that change nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from iii_runtime.core.errors import RegistrationError, message_of
from iii_runtime.core.payload import Json, check_name
from iii_runtime.core.runs.errors import QueryError
from iii_runtime.core.workflow.handlers import ArgumentsUnfitError, Handler
from iii_runtime.core.workflow.loop import WorkflowLoop

F = TypeVar("F", bound=Callable[..., Any])


class Queries:
    """The queries that a workflow answers, also when it has ended."""

    def __init__(self, loop: WorkflowLoop) -> None:
        self._loop = loop
        self._handlers: dict[str, Handler] = {}

    def handle(self, name: str, function: F) -> F:
        """Register a handler.

        Raises:
            RegistrationError: It is asynchronous: an answer is given at once.
        """
        check_name(name, "the name of a query")
        handler = Handler(function, f"query '{name}'")
        if handler.is_async:
            raise RegistrationError(f"the handler of query '{name}' is an async function; a query answers at once.")
        self._handlers[name] = handler
        return function

    def answer(self, name: str, arguments: Sequence[Json]) -> Any:
        """Return what the handler returns.

        Raises:
            QueryError: There is no such query, the arguments do not fit it, or its handler raised.
        """
        handler = self._handlers.get(name)
        if handler is None:
            known = ", ".join(sorted(self._handlers)) or "none"
            raise QueryError(f"the workflow answers no query '{name}'; known are: {known}.")
        loop = self._loop
        loop.is_reading = True
        try:
            with loop.entered():
                return loop.context.copy().run(handler.bind(arguments))
        except ArgumentsUnfitError as error:
            raise QueryError(error.message) from error
        except Exception as error:
            raise QueryError(f"query '{name}' raised {type(error).__name__}: {message_of(error)}") from error
        finally:
            loop.is_reading = False
