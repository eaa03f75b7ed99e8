"""Content types, as far as the rules for bodies need them."""

from __future__ import annotations

import re

from iii_runtime.core.frozen import frozen

_CODECS = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "ascii",
    "ascii": "ascii",
    "iso-8859-1": "latin-1",
    "latin1": "latin-1",
    "windows-1252": "cp1252",
    "utf-16": "utf-16",
}
_JSON_SUFFIX = re.compile(r"application/[^/\s]+\+json")


@frozen(kw_only=True)
class ContentType:
    """A content type, lower case.

    Attributes:
        media_type: Such as `application/json`; whatever stands before the first `;`.
        charset: As given, default `utf-8`.
    """

    media_type: str
    charset: str = "utf-8"

    @property
    def is_json(self) -> bool:
        """Whether bodies of this type are JSON text."""
        return self.media_type == "application/json" or bool(_JSON_SUFFIX.fullmatch(self.media_type))

    @property
    def is_text(self) -> bool:
        """Whether bodies of this type are text that is not JSON."""
        return self.media_type.startswith("text/") or self.media_type == "application/x-www-form-urlencoded"

    @property
    def codec(self) -> str | None:
        """Python's codec for the charset, None when it is not supported."""
        return _CODECS.get(self.charset)


def parse_content_type(value: str) -> ContentType:
    """Read a `Content-Type` header. Never fails: what cannot be read is an unknown type."""
    media_type, *parameters = value.lower().split(";")
    for parameter in parameters:
        name, _, charset = parameter.partition("=")
        if name.strip() == "charset":
            return ContentType(media_type=media_type.strip(), charset=charset.strip().strip("\"'"))
    return ContentType(media_type=media_type.strip())
