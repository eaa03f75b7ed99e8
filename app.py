"""Synthesises the stacks: run by `cdk`, or as `python app.py`, which leaves them in `cdk.out`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import aws_cdk as cdk

from iii_runtime.core.errors import IiiError
from infra.stacks import add_stacks

OUT = "cdk.out"


def main() -> int:
    """Synthesise; return the exit code."""
    # The command line of the CDK says where to, and reads cdk.json itself; without it both are done here.
    chosen = os.environ.get("CDK_OUTDIR")
    settings = json.loads(Path(__file__).with_name("cdk.json").read_text("utf-8"))
    app = cdk.App(outdir=chosen or OUT, context=settings["context"], analytics_reporting=False)
    try:
        add_stacks(app)
    except IiiError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    made = app.synth()
    if not chosen:
        for stack in made.stacks:
            sys.stdout.write(f"{Path(OUT, stack.template_file)}: {len(stack.template['Resources'])} resources\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
