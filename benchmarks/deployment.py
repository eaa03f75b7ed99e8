"""Measures what a deployment costs: bundle, synthesis and cold start, each beside what it can be compared with.

    .venv/bin/python benchmarks/deployment.py [bundle|synth|cold|imports ...] [--runs N]

Run it in the root of the repository, after `make bundle`. Times depend on the machine and on what else it does, so none
is asserted anywhere; compare what one run has measured side by side. CPU time suffers less from a busy machine.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import py_compile
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import boto3

from iii_runtime.cdk.bundle import Platform, build_bundle
from iii_runtime.cdk.project import Project
from iii_runtime.core.config.values import StageConfig
from iii_runtime.plan.manifest import MANIFEST_NAME

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURES = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "x86_64", "AMD64": "x86_64"}
SHOWN = 25

BOTO3 = "import boto3"
POWERTOOLS = f"{BOTO3}; from aws_lambda_powertools import Logger"
HOST = "import iii_runtime.hosts.aws_lambda.function"
APP = """
import os
from iii_runtime.hosts.aws_lambda.environment import read_environment
from iii_runtime.hosts.aws_lambda.sandbox import open_sandbox
open_sandbox(read_environment(os.environ))
"""
CASES = {
    "boto3": ("", BOTO3),
    "boto3 and the Logger of Powertools": ("", POWERTOOLS),
    "the host of a function": ("", HOST),
    "the host of a function, beyond boto3": (BOTO3, HOST),
    "the host of a function, beyond both": (POWERTOOLS, HOST),
    "its app, after that": (HOST, APP),
}
"""What is loaded before the clock starts, and what is measured."""

_CHILD = """
import json, sys, time
copy, sdk = json.loads(sys.argv[1])
sys.path[:] = [copy, *[each for each in sys.path if "site-packages" not in each], sdk]
exec(sys.argv[2], {})
wall, cpu = time.perf_counter(), time.process_time()
exec(sys.argv[3], {})
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))
sys.stdout.flush()
__import__("os")._exit(0)
"""

Times = tuple[float, float]
"""Seconds that passed, and seconds of CPU."""


def bundle(runs: int) -> None:
    """How long it takes to build a bundle whose libraries are installed, and how large it is."""
    stage = StageConfig()
    project, target = Project(root=ROOT), Platform(stage.architecture, stage.python)
    built = build_bundle(project, target)
    print_table({"build, libraries installed": [timed(lambda: build_bundle(project, target)) for _ in range(runs)]})
    print(f"{built}\n")


def synth(runs: int) -> None:
    """How long `python app.py` takes with the bundle there, with and without the CDK's own validator."""
    cases: dict[str, list[Times]] = {"without the validator": [], "with the validator": []}
    for _ in range(runs):
        for times, wanted in zip(cases.values(), ("false", "true"), strict=True):
            with TemporaryDirectory() as out:
                times.append(timed(synthesis(out, wanted)))
    print_table(cases)


def cold(runs: int) -> None:
    """How long a new process takes to load what it runs on Lambda, from the sources and compiled before."""
    with TemporaryDirectory() as folder:
        for state, copy in bundles_for_here(Path(folder)).items():
            cases: dict[str, list[Times]] = {case: [] for case in CASES}
            for _ in range(runs):
                for case, (before, measured) in CASES.items():
                    cases[case].append(loaded(copy, before, measured))
            print(f"The bundle {state}:")
            print_table(cases, relative_to="boto3")


def imports(runs: int) -> None:
    """Which modules take longest to load, by their own time: the least of all runs."""
    least: dict[str, int] = {}
    with TemporaryDirectory() as folder:
        copy = bundles_for_here(Path(folder))["compiled"]
        for _ in range(runs):
            command = child_command(copy, "", HOST, "-X", "importtime")
            said = subprocess.run(command, capture_output=True, text=True, check=True, env=variables_of(copy)).stderr
            for own, name in re.findall(r"^import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)", said, re.MULTILINE):
                least[name] = min(int(own), least.get(name, sys.maxsize))
    packages: Counter[str] = Counter()
    for name, own in least.items():
        top = name.partition(".")[0]
        packages["the standard library" if top in sys.stdlib_module_names else top] += own
    print(f"Own time of the {len(least)} modules of a function's host, ms:")
    for name, own in packages.most_common(8):
        print(f"  {own / 1000:8.1f}  {name}")
    for name, own in sorted(least.items(), key=lambda each: -each[1])[:SHOWN]:
        print(f"  {own / 1000:8.2f}  {name}")
    print()


def bundles_for_here(folder: Path) -> Mapping[str, Path]:
    """Return two copies of a bundle that this interpreter can import, as it is deployed and compiled."""
    here = Platform(ARCHITECTURES[platform.machine()], "{}.{}".format(*sys.version_info))  # type: ignore[arg-type]
    built = ROOT / build_bundle(Project(root=ROOT), here).path
    copies = {"as it is deployed": folder / "deployed", "compiled": folder / "compiled"}
    for copy in copies.values():
        shutil.copytree(built, copy)
    compileall.compile_dir(copies["compiled"], quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    return copies


def child_command(copy: Path, before: str, measured: str, *options: str) -> list[str]:
    """Return what loads something from a bundle with the SDK beside it, as on Lambda."""
    path = [str(copy), str(Path(boto3.__file__).parents[1])]
    return [sys.executable, "-I", "-B", *options, "-c", _CHILD, json.dumps(path), before, measured]


def loaded(copy: Path, before: str, measured: str) -> Times:
    """Return how long something takes in a process of its own."""
    done = subprocess.run(
        child_command(copy, before, measured), capture_output=True, text=True, check=True, env=variables_of(copy)
    )
    wall, cpu = json.loads(done.stdout.splitlines()[-1])
    return wall, cpu


def variables_of(copy: Path) -> dict[str, str]:
    """Return the variables of the Lambda of the first function."""
    function = json.loads((copy / MANIFEST_NAME).read_text())["functions"][0]["id"]
    names = {"III_APP": "orders", "III_STAGE": "dev", "III_ACCOUNT": "000000000000", "III_FUNCTION": function}
    keys = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_REGION": "us-east-1"}
    return names | keys | {"LAMBDA_TASK_ROOT": str(copy), "AWS_EC2_METADATA_DISABLED": "true"}


def synthesis(out: str, validation: str) -> Callable[[], object]:
    """Return what synthesises this repository into a folder."""
    command, variables = [sys.executable, str(ROOT / "app.py")], {**os.environ, "CDK_VALIDATION": validation}
    return lambda: subprocess.run(command, check=True, capture_output=True, cwd=out, env=variables)


def timed(work: Callable[[], object]) -> Times:
    """Return how long something takes, with the processes it starts."""
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    work()
    return time.perf_counter() - wall, sum(os.times()[:4]) - cpu


def print_table(cases: Mapping[str, Sequence[Times]], *, relative_to: str | None = None) -> None:
    """Print least, median and most of each case in ms, and how its least CPU time compares with that of another."""
    print(f"{'':38}{'min':>9}{'median':>9}{'max':>9}{'CPU min':>9}{'median':>9}   ms")
    for case, times in cases.items():
        walls, cpus = [wall * 1000 for wall, _ in times], [cpu * 1000 for _, cpu in times]
        line = "".join(f"{n:9.0f}" for n in (min(walls), median(walls), max(walls), min(cpus), median(cpus)))
        if relative_to is not None:
            line += f"   {min(cpus) / (min(cpu for _, cpu in cases[relative_to]) * 1000):.2f} x {relative_to}"
        print(f"{case:38}{line}")
    print()


def main() -> None:
    """Measure what is asked for; by default everything."""
    measures = {each.__name__: each for each in (bundle, synth, cold, imports)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"{', '.join(measures)}; all by default")
    parser.add_argument("--runs", type=int, default=7, help="how often each thing is measured; 7 by default")
    given = parser.parse_args()
    if unknown := set(given.measures) - measures.keys():
        parser.error(f"no such measure: {', '.join(sorted(unknown))}")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, load {load}\n")
    for name in given.measures or measures:
        print(f"{name}: {measures[name].__doc__} {given.runs} runs.\n")
        measures[name](given.runs)


if __name__ == "__main__":
    main()
