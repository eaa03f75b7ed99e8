"""Where commands run."""

from __future__ import annotations

import asyncio
import io
import logging
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from iii_runtime.adapters.aws.stage_access import StageAccess
from iii_runtime.core.config import Config
from iii_runtime.core.errors import IiiError
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.remote import Answer, RemoteTrigger, decode_request, encode_answer
from iii_runtime.core.remote_error import describe_error
from iii_runtime.core.trigger_request import TriggerActionEnqueue, TriggerRequest, parse_trigger_request
from iii_runtime.hosts.embedded.discovery import discover_workers
from iii_runtime.hosts.embedded.host import EmbeddedHost, HostOptions
from iii_runtime.hosts.embedded.session import LocalSession
from tests.host.commands import WORKER, imports_undone
from tests.host.stage import Asked, Reply, add_consumer, lambda_service, own_credentials
from tests.patience import PATIENCE_S


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work in a folder of its own, and undo what commands leave behind."""
    monkeypatch.chdir(tmp_path)
    for name in ("III_DATA", "III_CONFIG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    levels = {name: logging.getLogger(name).level for name in ("iii_runtime", "iii.logger")}
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project: the default folder of workers, no configuration."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "shop_worker.py").write_text(WORKER)
    return tmp_path


@pytest.fixture(scope="session")
def letters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    """A data directory with three dead letters on `default`, oldest first."""
    folder = tmp_path_factory.mktemp("letters")
    (folder / "shop_worker.py").write_text(WORKER)

    async def fill() -> tuple[str, ...]:
        with imports_undone(folder):
            workers = discover_workers([str(folder / "shop_worker.py")])
        host = EmbeddedHost(workers, Config(), HostOptions(data=folder / "data", http_port=0, stream_port=0))
        await host.start()
        receipts: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            for number in range(3):
                request = TriggerRequest("shop::fail", {"number": number}, TriggerActionEnqueue("default"))
                receipt: Any = await host.runtime.trigger(request)
                receipts.append(receipt["messageReceiptId"])
                show = TriggerRequest("engine::queue::dlq_message", {"message_id": receipts[-1]})
                while await host.runtime.trigger(show) is None:  # noqa: ASYNC110 - the host has no event for it
                    await asyncio.sleep(0.01)
        await host.stop()
        return tuple(receipts)

    return folder / "data", asyncio.run(fill())


@pytest.fixture
def dead(shop: Path, letters: tuple[Path, tuple[str, ...]]) -> tuple[str, ...]:
    """The project with those letters in its data directory; their receipts."""
    shutil.copytree(letters[0], shop / "data")
    return letters[1]


@pytest.fixture
def stage(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """A stage of the project with a store of its own, in `stage-data`; what its control Lambda was asked."""
    own_credentials(monkeypatch)

    def control(_name: str, event: Any) -> Reply:
        request = decode_request(event)
        assert isinstance(request, RemoteTrigger)
        with imports_undone(shop), redirect_stdout(io.StringIO()):
            workers = discover_workers([str(shop / "functions")])
            with LocalSession(shop / "stage-data", Config(), workers) as session:
                try:
                    told = Answer(result=session.call(parse_trigger_request(request.request)))
                except IiiError as error:
                    told = Answer(error=describe_error(error))
        return 200, {}, encode_answer(told)

    with mock_aws(config={"lambda": {"use_docker": False}}):
        add_consumer(StageAccess("iii", "prod").deployment, QueueSpec(name="default"))
        yield lambda_service(monkeypatch, "Invoke", control)


@pytest.fixture
def dead_there(dead: tuple[str, ...], shop: Path) -> tuple[str, ...]:
    """The letters of `dead`, in the stage as well."""
    shutil.copytree(shop / "data", shop / "stage-data")
    return dead
