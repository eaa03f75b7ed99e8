"""`python app.py` synthesises this repository with its bundle, and the bundle is what Lambda can run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from iii_runtime.cdk.bundle import MAX_ZIP_BYTES, Bundle, Platform, build_bundle
from iii_runtime.cdk.project import Project
from iii_runtime.core.errors import HostError
from tests.infra.synthesis import ROOT

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="session")
def bundle() -> Bundle:
    """The bundle of this repository, built once in a run. Only the first run ever asks for its libraries."""
    try:
        return build_bundle(Project(root=ROOT), Platform("arm64", "3.14"))
    except HostError as error:
        if error.code != "libraries_unavailable":
            raise
        pytest.fail(
            f"The bundle of this repository is needed: run `make bundle` once where PyPI can be reached.\n{error}",
            pytrace=False,
        )


def run_app(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run app.py in a folder as a developer without account, credentials, network and Docker does."""
    hidden = ("AWS_", "CDK_", "III_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    offline = {"HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "http_proxy": NOWHERE, "https_proxy": NOWHERE}
    return subprocess.run(
        [sys.executable, str(ROOT / "app.py")],
        cwd=folder,
        env={**environment, **offline, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_lambdas_share_one_asset_which_is_the_bundle(bundle: Bundle, tmp_path: Path) -> None:
    done = run_app(tmp_path, CDK_VALIDATION="false")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "cdk.out"
    resources = json.loads((out / "orders-dev.template.json").read_text())["Resources"]
    assert done.stdout == f"cdk.out/orders-dev.template.json: {len(resources)} resources\n"
    code = {
        json.dumps(each["Properties"]["Code"]["S3Key"])
        for each in resources.values()
        if each["Type"] == "AWS::Lambda::Function"
    }
    assert len(code) == 1
    (asset,) = [path for path in out.iterdir() if path.name.startswith("asset.")]
    assert (asset / "iii-manifest.json").read_bytes() == (ROOT / bundle.path / "iii-manifest.json").read_bytes()


def test_what_cannot_be_is_said_in_words_and_not_as_a_traceback(bundle: Bundle, tmp_path: Path) -> None:
    done = run_app(tmp_path, CDK_VALIDATION="false", CDK_CONTEXT_JSON=json.dumps({"stage": "prod"}))
    assert done.returncode == 1
    # Node may have something to say about its own version before.
    said = [line for line in done.stderr.splitlines() if not line.startswith("b'!!")]
    places = [re.match(r"(functions/\w+\.py:\d+|iii-config\.yaml:\d+): ", line) for line in said]
    assert len(said) == 5
    assert all(places)
    assert all(re.search(r"(Give the trigger an|Set) `auth`", line) for line in said)
    assert done.stdout == ""
    assert not list(tmp_path.rglob("*.template.json"))


def test_the_bundle_is_small_and_has_wheels_of_the_right_processor_alone(bundle: Bundle) -> None:
    assert 1_000_000 < bundle.zip_bytes < MAX_ZIP_BYTES
    binaries = [path.name for path in (ROOT / bundle.path).rglob("*.so")]
    assert binaries
    assert all("aarch64-linux-gnu" in name and "cpython-314" in name for name in binaries)


def test_the_bundle_has_what_fits_the_sdk_of_lambda_and_not_the_sdk(bundle: Bundle) -> None:
    found = {path.name.split("-")[0].replace("_", "-") for path in (ROOT / bundle.path).glob("*.dist-info")}
    assert {"pydantic", "croniter", "tzdata", "aws-lambda-powertools"} <= found
    assert not {"boto3", "botocore", "s3transfer", "urllib3"} & found
    assert not {"pyyaml", "PyYAML", "aws-cdk-lib", "click", "aiohttp"} & found
    (dateutil,) = (ROOT / bundle.path).glob("python_dateutil-*.dist-info")
    assert dateutil.name.startswith("python_dateutil-2.")


def test_the_entry_points_can_be_imported_from_the_bundle_alone(bundle: Bundle) -> None:
    """With the SDK beside it, as on Lambda; compiled parts are of another machine, so pydantic is not loaded."""
    names = [f"iii_runtime.hosts.aws_lambda.{name}" for name in ("function", "dispatcher", "control", "tick", "feed")]
    code = f"""
import sys
sdk = [path for path in sys.path if path.endswith("site-packages")]
sys.path[:] = [{str(ROOT / bundle.path)!r}, *[path for path in sys.path if path not in sdk], *sdk]
import importlib
for name in {names!r}:
    importlib.import_module(name)
import iii_runtime
print(iii_runtime.__file__)
"""
    done = subprocess.run([sys.executable, "-I", "-B", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(ROOT / bundle.path)
    assert not list((ROOT / bundle.path).rglob("__pycache__"))
