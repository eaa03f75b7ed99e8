"""The runtime's own functions, called through `trigger` like any other: state, streams, topics, queues, listings."""
