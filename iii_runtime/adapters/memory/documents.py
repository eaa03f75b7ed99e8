"""Keyed JSON documents in a dict; what state and streams have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from iii_runtime.core.payload import Json, PayloadTooLargeError, decode_stored, encode_json
from iii_runtime.core.update_ops import apply_ops
from iii_runtime.ports.state_store import Written

Key: TypeAlias = tuple[str, ...]
Publish: TypeAlias = Callable[[Written], None]


class Documents:
    """Documents as JSON texts, so that no caller shares a value with the store."""

    def __init__(self, max_value_bytes: int | None) -> None:
        self._texts: dict[Key, str] = {}
        self._max_value_bytes = max_value_bytes

    def get(self, key: Key) -> Json:
        """Return the value, None if there is none."""
        return decode_stored(self._texts[key]) if key in self._texts else None

    def all_keys(self) -> list[Key]:
        """Return all keys, sorted."""
        return sorted(self._texts)

    def values_under(self, prefix: Key) -> list[Json]:
        """Return the values of the keys that begin with `prefix`, by key."""
        return [self.get(key) for key in self.all_keys() if key[:-1] == prefix]

    def set(self, key: Key, value: Json, publish: Publish) -> Written:
        """Replace the value."""
        written = Written(old_value=self.get(key), new_value=value, existed=key in self._texts)
        return self._store(key, written, publish)

    def delete(self, key: Key, publish: Publish) -> Written:
        """Remove the value."""
        written = Written(old_value=self.get(key), new_value=None, existed=key in self._texts)
        self._texts.pop(key, None)
        publish(written)
        return written

    def update(self, key: Key, ops: Sequence[Json], publish: Publish) -> Written:
        """Apply update operations. If none of them applies, nothing is written and nothing published."""
        old_value = self.get(key)
        outcome = apply_ops(old_value, ops)
        written = Written(
            old_value=old_value, new_value=outcome.value, existed=key in self._texts, errors=outcome.errors
        )
        if len(outcome.errors) == len(ops):
            return replace(written, new_value=old_value)
        return self._store(key, written, publish)

    def _store(self, key: Key, written: Written, publish: Publish) -> Written:
        text = encode_json(written.new_value, "value")
        if self._max_value_bytes is not None and len(text) > self._max_value_bytes:
            raise PayloadTooLargeError(
                f"the value is {len(text):,} bytes as JSON; the limit is {self._max_value_bytes:,}.",
                code="VALUE_TOO_LARGE",
            )
        self._texts[key] = text
        publish(written)
        return written
