"""What can be wrong with a configuration, and where."""

from __future__ import annotations

from collections.abc import Iterable

from iii_runtime.core.errors import IiiError
from iii_runtime.core.frozen import frozen


@frozen(kw_only=True)
class ConfigProblem:
    """One thing to correct in a configuration file.

    Attributes:
        source: The file, as the user named it.
        line: Line in the file, from 1; None when the problem belongs to no line.
        key: Path of the key, such as `workers[1].config.port`; empty for the file as a whole.
        message: What is wrong and, where it is not plain, what to do.
        expected: What would have been right; None when a message says it all.
        found: What stands there, shortened; None when a message says it all.
    """

    source: str
    line: int | None
    key: str = ""
    message: str
    expected: str | None = None
    found: str | None = None

    def __str__(self) -> str:
        return render_at(self.source, self.line, self.key, self.message)


class ConfigError(IiiError):
    """A configuration cannot be used. Carries every problem found, in the order of the lines.

    Attributes:
        problems: At least one. The error's text has one line for each.
    """

    code = "config_invalid"

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        super().__init__("\n".join(map(str, self.problems)))


def render_at(source: str, line: int | None, key: str, message: str) -> str:
    """Return `file:line: key: message`, without the parts that are unknown."""
    place = source if line is None else f"{source}:{line}"
    return ": ".join(part for part in (place, key, message) if part)
