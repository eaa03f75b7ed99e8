"""What requests cost. All numbers are in `prices.json`, with their date."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("prices.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The price list.

    Attributes:
        date: When it held.
        currency: Of every price.
        each: Price of one of each kind.
        invocation: Price of the time of one Lambda invocation, as it is assumed there.
    """

    date: str
    currency: str
    each: dict[str, float]
    invocation: float

    def of(self, bought: Counter[str]) -> float:
        """Return what all of it costs; the time of each Lambda request is part of it."""
        return sum(self.each[kind] * count for kind, count in bought.items()) + (
            self.invocation * bought["lambda_request"]
        )


@cache
def prices() -> Prices:
    """Return the price list."""
    stored = json.loads(_FILE.read_text())
    assumed = stored["assumed"]
    seconds, gigabytes = assumed["invocation_ms"] / 1000, assumed["memory_mb"] / 1024
    return Prices(
        date=stored["date"],
        currency=stored["currency"],
        each={kind: price / 1_000_000 for kind, price in stored["per_million"].items()},
        invocation=stored["lambda_gb_second"] * seconds * gigabytes,
    )
