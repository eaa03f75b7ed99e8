"""Storage of the embedded host: one SQLite file, and files beside it for what is too large for a row."""
