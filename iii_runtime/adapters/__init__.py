"""The ports, done: how things are stored and run."""
