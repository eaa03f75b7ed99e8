"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no counterexample: times are measured elsewhere, never asserted.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
