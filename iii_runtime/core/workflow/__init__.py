"""Workflows: what a user writes, and the machine that runs it from recorded facts. Pure."""
