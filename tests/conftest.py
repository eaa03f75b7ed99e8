"""What holds for every test."""

from __future__ import annotations

import gc

from hypothesis import settings

# A busy machine is no counterexample: times are measured elsewhere, never asserted.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_collection_finish() -> None:
    """Leave the modules of tests and libraries to themselves: looking for garbage in them takes a fifth of a run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
