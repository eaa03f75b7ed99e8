"""Runs a command that must not outlive whoever started it: `tether.py COMMAND...` with a pipe as stdin.

The command is asked to stop when the pipe is closed, which the operating system does however its writer ends.
"""

import os
import subprocess
import sys
import threading

GRACE_SECONDS = 15


def main() -> int:
    """Run the command of argv until it ends or stdin does; returns its exit code."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    threading.Thread(target=stop_at_end_of_input, args=(child,), daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def stop_at_end_of_input(child: subprocess.Popen[bytes]) -> None:
    """Wait for the end of stdin, then stop the child: politely, and by force if that takes too long."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    child.terminate()
    try:
        child.wait(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    sys.exit(main())
