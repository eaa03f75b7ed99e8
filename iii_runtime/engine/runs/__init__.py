"""Durable runs: effects in the right order. What outside a run can tell of a fact follows after it was stored."""
