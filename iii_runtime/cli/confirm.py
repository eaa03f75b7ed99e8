"""Asks before something is lost."""

from __future__ import annotations

import sys

import click


def confirm_loss(question: str, *, is_agreed: bool) -> None:
    """Go on if the user agrees.

    Args:
        question: What would be lost.
        is_agreed: Whether `--yes` was given.

    Raises:
        click.UsageError: There is no terminal to ask on, and no `--yes`.
        click.Abort: The answer was no.
    """
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("this cannot be undone, and there is no terminal to ask on; add --yes.")
    click.confirm(question, abort=True, err=True)
