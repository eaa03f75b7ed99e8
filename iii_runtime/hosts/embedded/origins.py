"""Which browser pages may open a connection to the host."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from urllib.parse import urlsplit

from iii_runtime.core.config import CorsConfig, HttpConfig
from iii_runtime.engine.http_entry import HttpCall


def origin_rule(cors: CorsConfig | None) -> Callable[[str], bool]:
    """Return whether a page of an origin may open a stream connection.

    Browsers apply no cross-origin rule to WebSockets, so without this any page could read the streams of a host on its
    reader's machine. Pages of this machine may, and those that `cors` of iii-http allows (an empty list there: any).

    Args:
        cors: The section of the configuration; None allows pages of this machine only.
    """
    if cors is None:
        return is_loopback_origin
    if not cors.allowed_origins or "*" in cors.allowed_origins:
        return lambda _origin: True
    allowed = frozenset(cors.allowed_origins)
    return lambda origin: origin in allowed or is_loopback_origin(origin)


def run_routes_rule(config: HttpConfig) -> Callable[[HttpCall], bool] | None:
    """Return which requests may reach the routes of durable runs; None if there are none.

    On the loopback address those of this machine: a page that has another machine's name resolved to this one is not
    believed. Pages of elsewhere are those of `origin_rule`.
    """
    is_here = is_loopback_netloc(config.host)
    if not (is_here if config.run_routes is None else config.run_routes):
        return None
    may_read = origin_rule(config.cors)

    def may(call: HttpCall) -> bool:
        headers = call.named
        origin = headers.get("origin")
        return (not is_here or is_loopback_netloc(headers.get("host", ""))) and (origin is None or may_read(origin))

    return may


def is_loopback_origin(origin: str) -> bool:
    """Whether an `Origin` header names a page of this machine, on whatever port."""
    return origin.startswith(("http://", "https://")) and is_loopback_netloc(origin.partition("//")[2])


def is_loopback_netloc(netloc: str) -> bool:
    """Whether `host` or `host:port`, as in a `Host` header, names this machine."""
    try:
        host = urlsplit(f"//{netloc}").hostname
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
