"""`queues --stage`: figures that are estimates, and the kill switch."""

from __future__ import annotations

import json

import pytest
from moto import mock_aws

from tests.host.commands import answer, done, refused, run
from tests.host.stage import Asked, lambda_service, own_credentials, refusal

pytestmark = pytest.mark.usefixtures("own_folder")

STAGE = ("--stage", "prod")


@pytest.mark.usefixtures("stage")
def test_they_are_listed_with_the_state_of_their_consumer() -> None:
    header, _, line = done("queues", *STAGE).splitlines()
    assert header.split()[-1] == "state"
    assert line.split()[-1] == "running"
    assert answer("queues", *STAGE)[0]["state"] == "running"


@pytest.mark.usefixtures("stage")
def test_the_kill_switch_says_what_it_has_done_and_what_becomes_of_messages() -> None:
    result = run("queues", "pause", "default", *STAGE)
    assert result.exit_code == 0
    assert result.stdout == (
        "queue 'default' of stage 'prod' is paused: iii-prod-x-dispatcher takes no more messages from it\n"
    )
    assert "New messages are accepted and wait with the others, each for 14 days at most." in result.stderr
    assert "`iii-runtime queues resume default --stage prod`" in result.stderr
    assert answer("queues", *STAGE)[0]["state"] == "paused"
    assert "is paused already: " in done("queues", "pause", "default", *STAGE)
    assert done("queues", "resume", "default", *STAGE) == (
        "queue 'default' of stage 'prod' is running: iii-prod-x-dispatcher takes messages from it\n"
    )
    assert "is running already: " in done("queues", "resume", "default", *STAGE)


def test_the_kill_switch_asks_no_lambda_of_the_stage(stage: Asked) -> None:
    paused = {"queue": "default", "state": "paused", "changed": True, "consumer": "iii-prod-x-dispatcher"}
    assert answer("queues", "pause", "default", *STAGE) == paused
    assert answer("queues", "resume", "default", *STAGE) == {**paused, "state": "running"}
    assert stage == []


@pytest.mark.usefixtures("stage")
def test_a_queue_that_nothing_consumes_cannot_be_switched() -> None:
    told = refused(1, "queues", "pause", "typo", *STAGE)
    assert "error: queue_not_found: Queue 'typo' not found in stage 'prod'" in told
    assert "`iii-runtime queues --stage prod` lists the queues." in told


def test_there_is_no_kill_switch_on_this_machine() -> None:
    for command in ("pause", "resume"):
        assert "add --stage" in refused(2, "queues", command, "default")


@pytest.mark.usefixtures("stage")
def test_who_may_not_see_the_consumers_sees_the_queues_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    lambda_service(
        monkeypatch, "ListEventSourceMappings", lambda _name, _body: refusal(403, "AccessDeniedException", "no")
    )
    result = run("queues", "--json", *STAGE)
    assert json.loads(result.stdout)[0]["state"] is None
    assert "notice: whether queues are paused is not known: " in result.stderr
    assert "lambda:ListEventSourceMappings" in result.stderr


@pytest.mark.usefixtures("stage")
def test_a_purge_is_about_and_says_where() -> None:
    done("trigger", "shop::fail", "--queue", "default", *STAGE)
    assert "--yes" in refused(2, "queues", "purge", "default", *STAGE)
    assert done("queues", "purge", "default", "--yes", *STAGE) == "~1 purged\n"


@pytest.mark.parametrize("option", [("--stage", "prod"), ("--json",), ("--data", "elsewhere")])
def test_an_option_before_the_command_is_not_lost_in_silence(option: tuple[str, ...]) -> None:
    told = refused(2, "queues", *option, "purge", "default", "--yes")
    assert f"write {option[0]} after 'purge'" in told


def test_what_sqs_estimates_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    own_credentials(monkeypatch)
    settings = {"max_attempts": 3, "concurrency": 10, "type": "standard", "message_group_field": None, "backoff_ms": 1}
    estimated = {"visible": 12, "delayed": 0, "in_flight": 3, "is_exact": False}
    listing = [
        {"name": "a", "config": settings, "consumers": [], **estimated, "dead": 2, "sqs_visible": 5, "unindexed": 3},
        {"name": "b", "config": settings, "consumers": [], **estimated, "dead": 1, "sqs_visible": 1, "unindexed": 0},
    ]
    lambda_service(monkeypatch, "Invoke", lambda _name, _body: (200, {}, {"ok": listing}))
    with mock_aws(config={"lambda": {"use_docker": False}}):
        printed = [" ".join(line.split()) for line in done("queues", *STAGE).splitlines()]
        listed = answer("queues", *STAGE)
    assert printed[2:] == [
        "a standard 10 3 1 ms ~12 ~0 ~3 2 +~3 no consumer",
        "b standard 10 3 1 ms ~12 ~0 ~3 1 no consumer",
    ]
    assert listed == [{**queue, "state": "no consumer"} for queue in listing]
