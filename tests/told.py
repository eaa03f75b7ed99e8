"""What a test has to tell whoever runs it: a process of several has no terminal, so it is printed at the end."""

from __future__ import annotations

TOLD = "told"
"""Name of the property by which a test hands over a text: `record_property(TOLD, text)`."""
