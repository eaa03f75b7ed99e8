"""Reading the payload of a builtin function, with iii's error codes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from iii_runtime.core.errors import IiiError, InvocationError
from iii_runtime.core.payload import Json, PayloadError, check_name


class Fields:
    """The members of a builtin's payload. Every problem is an `InvocationError` with the builtin's own code."""

    def __init__(self, function_id: str, code: str, payload: Json) -> None:
        if payload is None:
            payload = {}
        if not isinstance(payload, dict):
            raise InvocationError(code, f"{function_id} takes an object, found {type(payload).__name__}.", function_id)
        self._function_id = function_id
        self._code = code
        self._members = payload

    def name(self, key: str) -> str:
        """Return a required name."""
        if key not in self._members:
            raise InvocationError(self._code, f"{self._function_id} needs '{key}'.", self._function_id)
        try:
            return check_name(self._members[key], f"'{key}' of {self._function_id}", limit=256)
        except PayloadError as error:
            raise InvocationError(self._code, error.message, self._function_id) from error

    def optional_name(self, key: str) -> str | None:
        """Return a name, None if it is missing or null."""
        return None if self._members.get(key) is None else self.name(key)

    def value(self, *keys: str) -> Json:
        """Return the first of `keys` that is there; one must be."""
        for key in keys:
            if key in self._members:
                return self._members[key]
        raise InvocationError(self._code, f"{self._function_id} needs '{keys[0]}'.", self._function_id)

    def optional(self, key: str) -> Json:
        """Return a member, None if it is missing."""
        return self._members.get(key)

    def array(self, key: str) -> list[Json]:
        """Return a required array."""
        value = self.value(key)
        if not isinstance(value, list):
            raise InvocationError(
                self._code, f"'{key}' of {self._function_id} must be an array, found {value!r:.60}.", self._function_id
            )
        return value

    def integer(self, key: str, default: int, *, most: int) -> int:
        """Return a number from 0 to `most`, `default` if it is missing or null."""
        value = self._members.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise InvocationError(
                self._code,
                f"'{key}' of {self._function_id} must be an integer from 0 to {most}, found {value!r:.60}.",
                self._function_id,
            )
        return value


@asynccontextmanager
async def failing_as(code: str, function_id: str) -> AsyncIterator[None]:
    """Turn errors of the store into an `InvocationError` with the builtin's code; `VALUE_TOO_LARGE` keeps its own."""
    try:
        yield
    except InvocationError:
        raise
    except IiiError as error:
        kept = error.code if error.code == "VALUE_TOO_LARGE" else code
        raise InvocationError(kept, f"{error.message} ({error.code})", function_id) from error
