"""The contract suites of the ports once more, on the AWS adapters over the emulator.

What moto cannot carry is proven here: transactions of many threads, deduplication of FIFO queues, streams, expiry.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import boto3
import pytest

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.engine.stores import Stores
from iii_runtime.hosts.aws_lambda.stores import aws_stores
from iii_runtime.plan.names import Deployment
from iii_runtime.ports.clock import Clock
from iii_runtime.testing.clock import SequenceIds, SkipClock
from tests.contract.aws_services import NOT_FAITHFUL, Services, create_bucket, create_table
from tests.contract.conftest import LARGEST_STATE_VALUE, RESPONSE_LEASE, Wakes
from tests.contract.sqs_services import stage_queues
from tests.e2e.contract.real_time import NEEDS_THE_CLOCK
from tests.e2e.emulator import ACCOUNT, REGION, Emulator

_stages = itertools.count(1)


@pytest.fixture
def clock() -> SkipClock:
    return SkipClock()


@pytest.fixture
def wakes() -> Wakes:
    return Wakes()


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """Name of the adapters under test. What cannot be carried on real time is skipped, and says why."""
    name = getattr(request.node, "originalname", "")
    reason = NOT_FAITHFUL.get(name) or NEEDS_THE_CLOCK.get(name)
    if reason is not None:
        pytest.skip(reason)
    return "aws"


@pytest.fixture
def holder_dies(clock: SkipClock) -> Callable[[], None]:
    """What makes the holder of a reservation count as dead: its time is over."""
    return lambda: clock.advance(RESPONSE_LEASE)


@pytest.fixture(scope="session")
def clients(emulator: Emulator) -> Clients:
    """Clients of the emulator."""
    session = boto3.session.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION)  # noqa: S106
    return Clients(REGION, session=session, endpoint_url=emulator.url)


@pytest.fixture
def services(clients: Clients) -> Services:
    """A stage of the test's own: its table and its bucket."""
    deployment = Deployment(app="contract", stage=f"t{next(_stages)}", region=REGION, account=ACCOUNT)
    create_table(clients, deployment)
    create_bucket(clients, deployment)
    return Services(clients=clients, deployment=deployment, calls=[])


@pytest.fixture
def stores(backend: str, services: Services, clock: Clock, wakes: Wakes) -> Stores:
    ids = SequenceIds()
    wakes.change_records = services.change_records
    queue, letters, _ = stage_queues(services, clock, ids)
    stores = aws_stores(
        services.clients,
        services.deployment,
        lambda: queue.deployed,
        clock,
        ids,
        max_value_bytes=LARGEST_STATE_VALUE,
        response_lease=RESPONSE_LEASE,
    )
    return replace(stores, queue=queue, letters=letters)
