"""The test kit: a clock that tests move, identities in sequence, and a host without network or disk."""
