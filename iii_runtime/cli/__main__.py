"""`python -m iii_runtime.cli`."""

import sys

from iii_runtime.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
