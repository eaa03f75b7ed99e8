"""The test kit: runs workers in a test's own process, on a clock that tests move, without network.

Write tests against these names.
"""

from iii_runtime.core.change import StreamChange
from iii_runtime.core.errors import StoreError
from iii_runtime.engine.stores import Stores
from iii_runtime.testing.clock import SkipClock
from iii_runtime.testing.harness import Harness, Reply

__all__ = ["Harness", "Reply", "SkipClock", "StoreError", "Stores", "StreamChange"]
