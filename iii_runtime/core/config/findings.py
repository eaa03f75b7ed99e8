"""Collects what is said about a document, so that one run reports everything."""

from __future__ import annotations

from iii_runtime.core.config.document import KeyPath, render_key
from iii_runtime.core.config.expand import Expansion
from iii_runtime.core.config.problem import ConfigProblem
from iii_runtime.core.config.values import Notice

_FOUND_LIMIT = 60


class Findings:
    """Problems and notices of one document, each at its line."""

    def __init__(self, expansion: Expansion, *, source: str) -> None:
        self._expansion = expansion
        self._source = source
        self._problems = [*expansion.problems, *expansion.document.problems]
        self._notices: dict[str, tuple[KeyPath, str, int]] = {}

    @property
    def problems(self) -> tuple[ConfigProblem, ...]:
        """Every problem so far."""
        return tuple(self._problems)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """One notice for each code, at its first place, in the order of the lines."""
        notices = [
            Notice(
                code=code.partition(":")[0],
                source=self._source,
                line=self.line_of(path),
                key=render_key(path),
                message=message if count == 1 else f"{message} ({count} places)",
            )
            for code, (path, message, count) in self._notices.items()
        ]
        return tuple(sorted(notices, key=lambda notice: notice.line or 0))

    def line_of(self, path: KeyPath) -> int:
        """Return the line of the place, or of the nearest place around it that exists."""
        lines = self._expansion.document.lines
        return next((lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in lines), 1)

    def mismatch(self, path: KeyPath, *, expected: str, found: object) -> None:
        """Report a value that is not what it has to be."""
        shown = render_found(found)
        if names := self._expansion.variables.get(path):
            shown += f" (from {', '.join(names)})"
        self._add(path, f"expected {expected}, found {shown}", expected=expected, found=shown)

    def problem(self, path: KeyPath, message: str) -> None:
        """Report what no pair of expected and found can say."""
        self._add(path, message)

    def notice(self, code: str, path: KeyPath, message: str) -> None:
        """Remark something without effect; repeated codes count up. What follows a colon only tells codes apart."""
        first, text, count = self._notices.get(code, (path, message, 0))
        if self.line_of(path) < self.line_of(first):
            first, text = path, message
        self._notices[code] = (first, text, count + 1)

    def _add(self, path: KeyPath, message: str, *, expected: str | None = None, found: str | None = None) -> None:
        if any(path[:end] in self._expansion.tainted for end in range(len(path) + 1)):
            return
        self._problems.append(
            ConfigProblem(
                source=self._source,
                line=self.line_of(path),
                key=render_key(path),
                message=message,
                expected=expected,
                found=found,
            )
        )


def render_found(value: object) -> str:
    """Return how a message shows a value of the file."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            text = repr(value)
            return text if len(text) <= _FOUND_LIMIT else f"{text[:_FOUND_LIMIT]}..."
