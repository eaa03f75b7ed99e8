"""Which origins and hosts count as this machine."""

from __future__ import annotations

import pytest

from iii_runtime.core.config import CorsConfig
from iii_runtime.hosts.embedded.origins import is_loopback_netloc, is_loopback_origin, origin_rule


@pytest.mark.parametrize(
    "netloc", ["localhost", "LOCALHOST:3111", "127.0.0.1", "127.0.0.1:1", "127.8.8.8:80", "[::1]", "[::1]:3111"]
)
def test_loopback_hosts_are_recognised(netloc: str) -> None:
    assert is_loopback_netloc(netloc)
    assert is_loopback_origin(f"http://{netloc}")


@pytest.mark.parametrize(
    "netloc",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example#localhost",
        "localhost:3111@evil.example",
        "10.0.0.1:3111",
        "192.168.0.1",
        "[::1",
        "[fe80::1]",
    ],
)
def test_other_hosts_are_not(netloc: str) -> None:
    assert not is_loopback_netloc(netloc)
    assert not is_loopback_origin(f"http://{netloc}")


@pytest.mark.parametrize("origin", ["null", "", "localhost", "file://", "ftp://localhost", "chrome-extension://abc"])
def test_what_is_no_web_origin_is_not_loopback(origin: str) -> None:
    assert not is_loopback_origin(origin)


def test_a_listed_origin_is_allowed_and_so_is_this_machine() -> None:
    rule = origin_rule(CorsConfig(allowed_origins=("https://shop.example",)))
    assert [rule(origin) for origin in ("https://shop.example", "http://localhost:1", "https://evil.example")] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("origins", [(), ("*",), ("https://shop.example", "*")])
def test_an_empty_list_or_a_star_allows_every_origin(origins: tuple[str, ...]) -> None:
    assert origin_rule(CorsConfig(allowed_origins=origins))("https://anywhere.example")
