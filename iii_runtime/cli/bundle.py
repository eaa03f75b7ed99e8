"""`iii-runtime bundle`."""

from __future__ import annotations

from pathlib import Path

import click

from iii_runtime.cli.output import print_json, visible
from iii_runtime.cli.place import FilledPath, config_option, config_or_default, filled, required_targets
from iii_runtime.core.payload import Json


@click.command()
@click.argument("targets", nargs=-1, callback=filled)
@config_option
@click.option(
    "--include",
    "includes",
    multiple=True,
    metavar="PATH",
    callback=filled,
    help="A file or folder that the code needs besides the modules it imports, repeatable.",
)
@click.option(
    "--requirements",
    type=FilledPath(dir_okay=False),
    show_default="requirements.txt beside TARGETS if it exists",
    help="File with the libraries of the code.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bundle(
    targets: tuple[str, ...], *, config: Path | None, includes: tuple[str, ...], requirements: str | None, as_json: bool
) -> None:
    """Build what the Lambdas of a deployment run, into build/lambda.

    TARGETS are files, folders or modules with workers; by default the folder `functions`. All paths are relative to the
    current folder, the root of the project.

    The libraries come from the package index, if their list has changed since the last time. AWS is not asked.
    """
    # Here because no other command needs it.
    from iii_runtime.cdk.bundle import build_bundles  # noqa: PLC0415
    from iii_runtime.cdk.project import Project  # noqa: PLC0415

    chosen = config_or_default(config)
    project = Project(
        root=Path.cwd(),
        functions=required_targets(targets, "bundle"),
        config=None if chosen is None else str(chosen),
        include=includes,
        requirements=requirements,
    )
    built: list[Json] = []
    for each in build_bundles(project):
        if not as_json:
            print(visible(str(each)))
        built.append(
            {
                "path": str(each.path),
                "sha256": each.digest,
                "zip_bytes": each.zip_bytes,
                "unpacked_bytes": each.unpacked_bytes,
            }
        )
    if as_json:
        print_json(built, compact=True)
