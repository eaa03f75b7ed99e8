"""Checks plain data against a model and reports each mistake in the file's own terms."""

from __future__ import annotations

from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from iii_runtime.core.config.document import KeyPath
from iii_runtime.core.config.entries import unknown_key
from iii_runtime.core.config.findings import Findings
from iii_runtime.core.config.schema import MISMATCH, REFUSED, NoEffect, Section

AnySection = TypeVar("AnySection", bound=Section)

_EXPECTED = {
    MISMATCH: "{expected}",
    "int_type": "an integer",
    "greater_than_equal": "an integer >= {ge}",
    "less_than_equal": "an integer <= {le}",
    "bool_type": "true or false",
    "string_type": "a text",
    "literal_error": "{expected}",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "missing": "a value (this key is needed)",
    "too_short": "a list that is not empty",
}
_OF_KEY = "[key]"
"""What pydantic adds to the place of a key that is not what it has to be."""


def validate(model: type[AnySection], value: object, path: KeyPath, findings: Findings) -> AnySection | None:
    """Return the section, with a notice for each key in it without effect; None after reporting what is wrong."""
    try:
        section = model.model_validate(value)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            _report(details, model, path, findings)
        return None
    for name, field in model.model_fields.items():
        for mark in field.metadata:
            if isinstance(mark, NoEffect) and name in section.model_fields_set:
                findings.notice(mark.code, (*path, name), mark.message)
    return section


def _report(details: ErrorDetails, model: type[Section], path: KeyPath, findings: Findings) -> None:
    place: KeyPath = (*path, *(part for part in details["loc"] if part != _OF_KEY))
    context = details.get("ctx", {})
    match details["type"]:
        case "extra_forbidden":
            findings.problem(place, unknown_key(str(place[-1]), _known_keys(model, details["loc"])))
        case kind if kind == REFUSED:
            findings.problem(place, str(context["message"]))
        case kind:
            expected = _EXPECTED[kind].format(**context) if kind in _EXPECTED else details["msg"]
            findings.mismatch(place, expected=expected, found=None if kind == "missing" else details["input"])


def _known_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[str, ...]:
    for part in loc[:-1]:
        if str(part) not in model.model_fields:
            continue  # a name in a mapping whose values are all of this model
        annotation = model.model_fields[str(part)].annotation
        model = next(a for a in (annotation, *get_args(annotation)) if isinstance(a, type) and issubclass(a, BaseModel))
    return tuple(model.model_fields)
