"""Every port over plain dicts: the model that the other adapters are compared with, and fakes for tests."""
