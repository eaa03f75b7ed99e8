"""Cross-origin rules: which headers let a browser's page read an answer."""

from __future__ import annotations

import re

from iii_runtime.core.config import CorsConfig

MAX_AGE_SECONDS = 600

_TOKENS = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[ \t]*,[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*")


def cors_headers(
    rules: CorsConfig,
    *,
    origin: str | None,
    method: str,
    is_preflight: bool = False,
    requested_headers: str | None = None,
) -> tuple[tuple[str, str], ...]:
    """Return the headers to add to an answer.

    A page that may not read the answer gets no `Access-Control-*` header; the browser then refuses it. `Vary: Origin`
    is there whenever the answer depends on the origin, so a shared cache keeps the answers apart.

    Args:
        rules: The configuration.
        origin: The `Origin` header, None when there is none.
        method: The method of the request; in a preflight `Access-Control-Request-Method`.
        is_preflight: Whether this is the browser's OPTIONS request before the real one.
        requested_headers: `Access-Control-Request-Headers` of a preflight; allowed as asked.
    """
    is_any = not rules.allowed_origins or "*" in rules.allowed_origins
    vary = [] if is_any else ["Origin"]
    granted: list[tuple[str, str]] = []
    if origin is not None and (is_any or origin in rules.allowed_origins):
        granted.append(("Access-Control-Allow-Origin", "*" if is_any else origin))
        if is_preflight:
            granted = _preflight(granted, rules, method, requested_headers)
    if is_preflight:
        vary += ["Access-Control-Request-Method", "Access-Control-Request-Headers"]
    return (*granted, ("Vary", ", ".join(vary))) if vary else tuple(granted)


def _preflight(
    granted: list[tuple[str, str]], rules: CorsConfig, method: str, requested_headers: str | None
) -> list[tuple[str, str]]:
    is_any = not rules.allowed_methods or "*" in rules.allowed_methods
    if not _TOKENS.fullmatch(method) or not (is_any or method in rules.allowed_methods):
        return []
    methods = method if is_any else ", ".join(rules.allowed_methods)
    granted = [*granted, ("Access-Control-Allow-Methods", methods)]
    if requested_headers and _TOKENS.fullmatch(requested_headers):
        granted.append(("Access-Control-Allow-Headers", requested_headers))
    return [*granted, ("Access-Control-Max-Age", str(MAX_AGE_SECONDS))]
