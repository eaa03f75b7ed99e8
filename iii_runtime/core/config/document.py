"""A parsed YAML text as plain data, with the line of every value. What a reader of YAML hands over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from iii_runtime.core.config.problem import ConfigProblem
from iii_runtime.core.frozen import frozen

KeyPath = tuple[str | int, ...]
"""Keys of mappings and indices of lists, from the root."""


@frozen(kw_only=True)
class Document:
    """One YAML document.

    Attributes:
        value: Plain data: mappings with text keys, lists, texts, numbers, booleans, None.
        lines: Line of every value, from 1; for a value in a mapping the line of its key.
        texts: The text of every scalar as written, without quotes and before it became a number or boolean.
        problems: What is wrong with it although it could be read, such as a duplicate key.
    """

    value: object
    lines: Mapping[KeyPath, int]
    texts: Mapping[KeyPath, str]
    problems: tuple[ConfigProblem, ...] = ()


class DocumentReader(Protocol):
    """Reads YAML without expanding or checking anything."""

    def __call__(self, text: str, *, source: str) -> Document:
        """Return the document in `text`; the value of an empty text is None.

        Raises:
            ConfigError: The text is no YAML, or larger or deeper than a configuration can be.
        """
        ...


def render_key(path: KeyPath) -> str:
    """Return `workers[1].config.port` for `("workers", 1, "config", "port")`."""
    return "".join(_render_part(part) for part in path).removeprefix(".")


def _render_part(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if part and len(part) <= 80 and part.isprintable() else f".{part!r:.80}"
