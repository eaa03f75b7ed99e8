"""Functions of a workflow that are called from outside, with values from a journal or a client: signals and queries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from iii_runtime.core.errors import IiiError, RegistrationError
from iii_runtime.core.payload import Json, PayloadError
from iii_runtime.core.runs.value_hints import hint_of
from iii_runtime.core.runs.values import decode_value


class ArgumentsUnfitError(IiiError):
    """What was sent does not fit the parameters of a handler."""

    code = "arguments_unfit"


class Handler:
    """A handler of a signal or a query.

    Args:
        function: What to call.
        what: What it handles, such as `signal 'approved'`.
    """

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        if not callable(function):
            raise RegistrationError(f"the handler of {what} must be a function, found {function!r:.80}.")
        self.function = function
        self.what = what
        self._signature = inspect.signature(function)

    @property
    def is_async(self) -> bool:
        """Whether it is an `async def`."""
        return inspect.iscoroutinefunction(self.function)

    def bind(self, values: Sequence[Json]) -> Callable[[], Any]:
        """Return the call with its arguments.

        Raises:
            ArgumentsUnfitError: Too many, too few, or a value that does not fit its parameter's class.
        """
        try:
            bound = self._signature.bind(*values)
            for name, value in bound.arguments.items():
                parameter = self._signature.parameters[name]
                hint = hint_of(self.function, name)
                if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                    bound.arguments[name] = tuple(decode_value(each, hint) for each in value)
                else:
                    bound.arguments[name] = decode_value(value, hint, f"argument '{name}' of {self.what}")
        except (TypeError, PayloadError) as error:
            raise ArgumentsUnfitError(f"{self.what} takes {self._signature}: {error}") from error
        return lambda: self.function(*bound.args, **bound.kwargs)
