"""Durable runs from outside: what a program that starts and follows them uses."""
