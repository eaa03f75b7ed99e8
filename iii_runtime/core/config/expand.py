"""`${VAR}` and `${VAR:default}`: the environment put into the text before it is YAML.

The text is replaced as in iii, but a value cannot rewrite the file around it. The YAML is read twice: once with a
harmless token in place of each value, once with the values. The two must have the same shape and the same texts;
only a value that is a flow list or mapping and fills its place alone may bring a structure of its own. The first
reading also tells which references are part of the data: one in a comment is left as it is and needs no value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import field, replace

from iii_runtime.core.config.document import Document, DocumentReader, KeyPath, render_key
from iii_runtime.core.config.problem import ConfigError, ConfigProblem
from iii_runtime.core.frozen import frozen

_REFERENCE = re.compile(r"\$\{(?:([^}\r\n]*)\}|[A-Za-z0-9_]*)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNFIT = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


@frozen(kw_only=True)
class Reference:
    """One `${...}` in the text.

    Attributes:
        start: Index of its first character.
        text: As written.
        line: From 1.
        name: The variable.
        default: None without one.
        fault: Why it is no reference at all; None if it is one.
    """

    start: int
    text: str
    line: int
    name: str
    default: str | None
    fault: str | None


@frozen(kw_only=True)
class Expansion:
    """The document with the environment in it.

    Attributes:
        document: As read after the expansion.
        problems: References without a value, or with one that cannot be used.
        tainted: Places whose value is unknown because of such a problem; nothing below them is worth a report.
        variables: The variables that were put into a value, by its place.
    """

    document: Document
    problems: tuple[ConfigProblem, ...] = ()
    tainted: frozenset[KeyPath] = frozenset()
    variables: Mapping[KeyPath, tuple[str, ...]] = field(default_factory=dict)


def expand(text: str, *, source: str, env: Mapping[str, str], load: DocumentReader) -> Expansion:
    """Return the document in `text` with its references replaced from `env`.

    A variable that is set wins over the default, even when it is empty. Lines keep their numbers.

    Raises:
        ConfigError: The text is no YAML.
    """
    references = tuple(find_references(text))
    if not references:
        return Expansion(document=load(text, source=source))
    return _Expander(text, references, source=source, env=env, load=load).expand()


def find_references(text: str) -> Iterator[Reference]:
    """Yield every `${...}` of the text, well formed or not."""
    for match in _REFERENCE.finditer(text):
        name, colon, default = (match[1] or "").partition(":")
        yield Reference(
            start=match.start(),
            text=match[0],
            line=text.count("\n", 0, match.start()) + 1,
            name=name,
            default=default if colon else None,
            fault=_fault(name, default, is_closed=match[1] is not None),
        )


def _fault(name: str, default: str, *, is_closed: bool) -> str | None:
    if not is_closed:
        return "`${` without its `}` on the same line"
    if "${" in default:
        return "references cannot be nested"
    if not _NAME.fullmatch(name):
        return "expected `${NAME}` or `${NAME:default}`; a name has letters, digits and `_`"
    return None


class _Expander:
    """The readings of one text, and their comparison. References are known by their index."""

    def __init__(
        self, text: str, references: tuple[Reference, ...], *, source: str, env: Mapping[str, str], load: DocumentReader
    ) -> None:
        self._text = text
        self._source = source
        self._load = load
        self._references = references
        self._values = [None if ref.fault else env.get(ref.name) for ref in references]
        # A default is part of the file and stands in every reading; only what comes from outside gets a token.
        self._defaults = [
            None if ref.fault or value is not None else ref.default
            for ref, value in zip(references, self._values, strict=True)
        ]
        self._prefix = "iiivar"
        while any(self._prefix in known for known in (text, *filter(None, self._values))):
            self._prefix += "x"
        self._token = re.compile(f"{self._prefix}([0-9]+)z")
        self._template = self._read({index: self._token_of(index) for index in range(len(references))})
        self._used = {path: self._indices(path) for path in self._template.lines}
        self._first_use: dict[int, KeyPath] = {}
        for path, indices in self._used.items():
            for index in indices:
                self._first_use.setdefault(index, path)

    def expand(self) -> Expansion:
        problems = {index: self._problem(index, fault) for index in self._first_use if (fault := self._fault(index))}
        usable = self._first_use.keys() - problems.keys()
        document = self._try(usable)
        if document is None:
            guilty = {index for index in usable if self._try({index}) is None} or set(usable)
            problems |= {index: self._problem(index, self._intrusion(index)) for index in guilty}
            usable -= guilty
            document = self._try(usable)
        if document is None:  # harmless one by one, not together
            problems |= {index: self._problem(index, self._intrusion(index)) for index in usable}
            usable, document = set(), self._template
        places = {self._place(path, usable): indices for path, indices in self._used.items() if indices}
        return Expansion(
            document=document,
            problems=tuple(problems.values()),
            tainted=frozenset(place for place, indices in places.items() if indices & problems.keys()),
            variables={place: tuple(self._references[i].name for i in sorted(ids)) for place, ids in places.items()},
        )

    def _try(self, inserted: Set[int]) -> Document | None:
        """Read the text with these values in it; None if one of them changes more than its own place."""
        pieces: dict[int, str] = {}
        for index, value in enumerate(self._values):
            pieces[index] = value if index in inserted and value is not None else self._token_of(index)
        try:
            document = self._read(pieces)
        except ConfigError:
            return None
        return document if self._has_shape_of_template(document, inserted) else None

    def _read(self, pieces: Mapping[int, str]) -> Document:
        """Read the text with `pieces` in place of the references that do not take their default."""
        parts, at = [], 0
        for index, (ref, default) in enumerate(zip(self._references, self._defaults, strict=True)):
            parts += [self._text[at : ref.start], pieces[index] if default is None else default]
            at = ref.start + len(ref.text)
        try:
            document = self._load("".join([*parts, self._text[at:]]), source=self._source)
        except ConfigError as error:
            raise ConfigError(map(self._as_written, error.problems)) from None
        return replace(document, problems=tuple(map(self._as_written, document.problems)))

    def _has_shape_of_template(self, document: Document, inserted: Set[int]) -> bool:
        known: set[KeyPath] = set()
        for path in self._template.lines:
            place, text = self._place(path, inserted), self._template.texts.get(path)
            known.add(place)
            expected = None if text is None else self._with_values(text, inserted)
            if expected is not None and place in document.lines and place not in document.texts:
                if not self._token.fullmatch(text or "") or expected.lstrip()[:1] not in {"[", "{"}:
                    return False
                known |= {below for below in document.lines if below[: len(place)] == place}
            elif _squeeze(expected) != _squeeze(document.texts.get(place)):
                return False
        return known == document.lines.keys()

    def _fault(self, index: int) -> str | None:
        ref, value = self._references[index], self._values[index]
        if ref.fault:
            return f"{ref.text:.60}: {ref.fault}"
        if value is None:
            return f"the environment variable {ref.name} is not set, and {ref.text} has no default"
        if _UNFIT.search(value):
            return f"the value of {ref.name} contains a line break or a control character"
        return None

    def _intrusion(self, index: int) -> str:
        ref = self._references[index]
        return f"the value of {ref.name} is not one YAML value here and would change the text around {ref.text}"

    def _problem(self, index: int, message: str) -> ConfigProblem:
        key = self._original(render_key(self._first_use[index]))
        return ConfigProblem(source=self._source, line=self._references[index].line, key=key, message=message)

    def _token_of(self, index: int) -> str:
        return f"{self._prefix}{index}z"

    def _indices(self, path: KeyPath) -> frozenset[int]:
        texts = (self._template.texts.get(path, ""), *(part for part in path if isinstance(part, str)))
        return frozenset(int(match[1]) for text in texts for match in self._token.finditer(text))

    def _with_values(self, text: str, inserted: Set[int]) -> str:
        def value_of(match: re.Match[str]) -> str:
            value = self._values[int(match[1])]
            return value if int(match[1]) in inserted and value is not None else match[0]

        return self._token.sub(value_of, text)

    def _place(self, path: KeyPath, inserted: Set[int]) -> KeyPath:
        return tuple(self._with_values(part, inserted) if isinstance(part, str) else part for part in path)

    def _original(self, text: str) -> str:
        return self._token.sub(lambda match: self._references[int(match[1])].text, text)

    def _as_written(self, problem: ConfigProblem) -> ConfigProblem:
        return replace(problem, key=self._original(problem.key), message=self._original(problem.message))


def _squeeze(text: str | None) -> str | None:
    """White space is YAML's to fold, so it does not count as a change."""
    return None if text is None else "".join(text.split())
