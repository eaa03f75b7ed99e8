"""From the wire to the request dict that a function receives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from iii_runtime.core.api_types import Caller, describe_caller
from iii_runtime.core.http.errors import BadRequestError, BodyTooLargeError
from iii_runtime.core.http.media import ContentType, parse_content_type
from iii_runtime.core.http.routes import Route
from iii_runtime.core.payload import Json, PayloadError, PayloadTooLargeError, decode_json

Body: TypeAlias = "Json | bytes"

MAX_QUERY_PARAMETERS = 1000

UNKEYED_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing: an `Idempotency-Key` of theirs is ignored."""


def build_request(
    route: Route[Any],
    *,
    method: str,
    path_params: Mapping[str, str],
    query: str,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    caller: Caller | None = None,
) -> dict[str, Any]:
    """Return the request dict of iii, with one member more, `caller`.

    Args:
        route: The matched route; `path` and `trigger` name its registered pattern and method.
        method: The method of the request, HEAD where that fell back to a GET route.
        path_params: From the match.
        query: The raw query string, without `?`.
        headers: Pairs in order. Names become lower case; repeated ones are joined by `, ` (cookies by `; `).
        body: The raw bytes, see `parse_body`.
        caller: Who sent the request, where the host knows that for certain.

    Raises:
        BadRequestError: The query or the body cannot be read.
    """
    named = join_headers(headers)
    return {
        "path": route.pattern,
        "method": method.upper(),
        "path_params": dict(path_params),
        "query_params": parse_query(query),
        "headers": named,
        "body": parse_body(named.get("content-type"), body),
        "trigger": {"type": "http", "path": route.pattern, "method": route.method},
        "caller": describe_caller(caller),
    }


def parse_body(content_type: str | None, raw: bytes) -> Body:
    """Read a request body by its content type.

    An empty body is None whatever its type. `application/json` and `application/*+json` are parsed strictly (UTF-8
    only); `text/*` and `application/x-www-form-urlencoded` are text in their charset (default UTF-8); a body without
    a content type is text if it is UTF-8, else bytes; everything else, multipart included, is bytes.

    Raises:
        BadRequestError: JSON that does not parse or is nested too deep, text that is not in its charset, or a charset
            that is not supported. (iii passes null for broken JSON; here the caller learns of it.)
        BodyTooLargeError: JSON larger than the runtime keeps.
    """
    if not raw:
        return None
    if content_type is None or not content_type.strip():
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return raw
    media = parse_content_type(content_type)
    if media.is_json:
        return _parse_json(media, raw)
    return _parse_text(media, raw) if media.is_text else raw


def parse_query(query: str) -> dict[str, str]:
    """Return one value for each name; of repeated names the last. A name without `=` has the value `""`.

    Raises:
        BadRequestError: Not UTF-8 once decoded, or more than `MAX_QUERY_PARAMETERS` parameters.
    """
    try:
        query.encode("utf-8")
        return dict(parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_PARAMETERS))
    except UnicodeError as error:
        raise BadRequestError("the query string is not UTF-8.") from error
    except ValueError as error:
        raise BadRequestError(f"the query string has more than {MAX_QUERY_PARAMETERS} parameters.") from error


def join_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return one value for each lower-case name, repeated headers joined in order."""
    joined: dict[str, str] = {}
    for raw_name, value in headers:
        name = raw_name.lower()
        separator = "; " if name == "cookie" else ", "
        joined[name] = f"{joined[name]}{separator}{value}" if name in joined else value
    return joined


def _parse_json(media: ContentType, raw: bytes) -> Json:
    if media.charset not in ("utf-8", "us-ascii"):
        raise BadRequestError(f"a JSON body must be UTF-8, found charset {media.charset[:40]!a}.")
    try:
        return decode_json(raw, "the request body")
    except PayloadTooLargeError as error:
        raise BodyTooLargeError(error.message) from error
    except PayloadError as error:
        raise BadRequestError(error.message) from error


def _parse_text(media: ContentType, raw: bytes) -> str:
    if media.codec is None:
        raise BadRequestError(f"the charset {media.charset[:40]!a} of the body is not supported; send UTF-8.")
    try:
        return raw.decode(media.codec)
    except UnicodeDecodeError as error:
        raise BadRequestError(f"the body is not {media.charset}: byte {error.start} cannot be decoded.") from error
