"""The bundle and the services, once for all tests here, and a sandbox of any Lambda."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol
from urllib.request import urlopen

import boto3
import botocore.session
import pytest

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.plan.names import FEED_FAILURES, TICK_QUEUE
from tests.contract.aws_services import create_queues, create_table
from tests.lambda_runtime.aws_endpoint import FORGET, TAKEN
from tests.lambda_runtime.built import DEPLOYMENT, ROOT, Built, build
from tests.lambda_runtime.sandbox_process import SandboxProcess


class Start(Protocol):
    """Starts a sandbox."""

    def __call__(
        self, name: str, *, bundle: Path | None = None, variables: Mapping[str, str] | None = None
    ) -> SandboxProcess:
        """Start a Lambda.

        Args:
            name: A registered function, or the role of one of the runtime's own Lambdas.
            bundle: The folder with the code, if it is not the bundle.
            variables: Further environment variables.
        """
        ...


@pytest.fixture(scope="session")
def built() -> Built:
    """The bundle."""
    if sys.platform != "linux":
        pytest.skip("the runtime interface client of Lambda has wheels for Linux alone")
    return build()


@pytest.fixture(scope="session")
def aws_url() -> Iterator[str]:
    """Where the services answer, empty."""
    command = [sys.executable, "-m", "tests.lambda_runtime.aws_endpoint"]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, "the services did not start"
        yield f"http://127.0.0.1:{port}"
        process.stdin.close()


@pytest.fixture(scope="session")
def clients(aws_url: str) -> Clients:
    """Clients of the services."""
    core = botocore.session.Session()
    core.set_credentials("testing", "testing")
    core.set_config_variable("account_id_endpoint_mode", "disabled")
    return Clients(DEPLOYMENT.region, session=boto3.session.Session(botocore_session=core), endpoint_url=aws_url)


@pytest.fixture
def services(aws_url: str, clients: Clients, built: Built) -> Clients:
    """The services, with everything in place that a deployment makes, and nothing else."""
    with urlopen(f"{aws_url}{FORGET}"):
        pass
    create_table(clients, DEPLOYMENT)
    clients.s3.create_bucket(
        Bucket=DEPLOYMENT.bucket_name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    create_queues(clients, DEPLOYMENT, [planned.spec for planned in built.plan.queues.values()])
    for name in (TICK_QUEUE, FEED_FAILURES):
        clients.sqs.create_queue(QueueName=DEPLOYMENT.own_queue_name(name))
    clients.sns.create_topic(Name=DEPLOYMENT.progress_topic_arn.rpartition(":")[2])
    return clients


@pytest.fixture
def taken(aws_url: str, services: Clients) -> Callable[[], list[Any]]:
    """Return what Lambda and the WebSocket API were sent: `[function or path, body]`, oldest first."""

    def ask() -> list[Any]:
        with urlopen(f"{aws_url}{TAKEN}") as answer:
            found: list[Any] = json.load(answer)
        return found

    return ask


@pytest.fixture
def start(built: Built, services: Clients, aws_url: str, tmp_path: Path) -> Iterator[Start]:
    """Start sandboxes, which end with the test."""
    numbers = itertools.count(1)
    with ExitStack() as running:

        def begin(
            name: str, *, bundle: Path | None = None, variables: Mapping[str, str] | None = None
        ) -> SandboxProcess:
            (planned,) = (each for each in built.plan.functions.values() if name in {each.function_id, each.role})
            log = tmp_path / f"log-{next(numbers)}"
            sandbox = SandboxProcess(built, planned, aws=aws_url, log=log, bundle=bundle, variables=variables)
            return running.enter_context(sandbox)

        yield begin


@pytest.fixture
def bundle_without(built: Built, tmp_path: Path) -> Callable[[str], Path]:
    """Make a bundle without one member of its root."""

    def make(name: str) -> Path:
        return _linked(built.bundle, tmp_path / "bundle", without={name})

    return make


@pytest.fixture
def bundle_with(built: Built, tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    """Make a bundle in which the packages of some files consist of these files alone."""

    def make(files: Mapping[str, str]) -> Path:
        bundle = _linked(built.bundle, tmp_path / "bundle", without={name.partition("/")[0] for name in files})
        for name, text in files.items():
            (bundle / name).parent.mkdir(parents=True)
            (bundle / name).write_text(text, "utf-8")
        return bundle

    return make


def _linked(source: Path, target: Path, *, without: Collection[str]) -> Path:
    target.mkdir()
    for member in source.iterdir():
        if member.name not in without:
            (target / member.name).symlink_to(member)
    return target
