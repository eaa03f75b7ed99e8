"""Durable runs as values: what is stored of a run, and what is decided from it. Pure."""
