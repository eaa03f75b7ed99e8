"""The script `iii-runtime`: one line instead of a traceback where the libraries of the command line are missing."""

import sys

_EXTRA = frozenset({"aiohttp", "click", "rich", "watchfiles"})
_CANNOT_RUN = 2


def main() -> int:
    """Run one command and return its exit code; 2 without the extra `embedded`."""
    try:
        # Here because it needs the extra itself.
        from iii_runtime.cli.main import main as run_command  # noqa: PLC0415

        return run_command()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        print("iii-runtime: the command line needs the extra: pip install 'iii-runtime[embedded]'", file=sys.stderr)
        return _CANNOT_RUN
