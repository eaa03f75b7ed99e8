"""What EventBridge hands to a Lambda is what the Lambda reads: the same job, at the time at which it was due."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from iii_runtime import Cron, Worker
from iii_runtime.core.config import Config
from iii_runtime.core.config.values import AwsConfig, StreamConfig
from iii_runtime.core.remote import RemoteTick, decode_request
from iii_runtime.hosts.events import CronTick, parse_event
from iii_runtime.plan.jobs import plan_jobs
from iii_runtime.plan.manifest import read_manifest
from tests.infra.conftest import SHOP, register_shop
from tests.infra.synthesis import ROOT, Synthesised, manifest_of, synthesise

DUE = datetime(2026, 11, 29, 10, tzinfo=UTC)
TIME = "2026-11-29T10:00:00Z"


def by_a_rule(transformer: Mapping[str, object], event: Mapping[str, object]) -> str:
    """Return what EventBridge makes of a template: a text that is not within quotes yet is put into quotes."""
    paths, rendered = transformer["InputPathsMap"], transformer["InputTemplate"]
    assert isinstance(paths, Mapping)
    assert isinstance(rendered, str)
    for name, path in paths.items():
        value = event[path.removeprefix("$.")]
        rendered = rendered.replace(f'"<{name}>"', json.dumps(value)).replace(f"<{name}>", json.dumps(value))
    return rendered


def by_a_schedule(template: str) -> str:
    """Return what EventBridge Scheduler makes of an input: it puts in the texts of its own keywords as they are."""
    return template.replace("<aws.scheduler.scheduled-time>", TIME)


def handed_over(made: Synthesised) -> Iterator[tuple[str, str]]:
    """Yield rule or schedule, by name, and the input that its Lambda gets, of all that start a function."""
    for template in made.templates.values():
        for resource in template.of("AWS::Events::Rule").values():
            rule = template.properties(resource)
            (target,) = rule["Targets"]
            if "InputTransformer" in target:
                yield rule["Name"], by_a_rule(target["InputTransformer"], {"time": TIME})
        for resource in template.of("AWS::Scheduler::Schedule").values():
            schedule = template.properties(resource)
            yield schedule["Name"], by_a_schedule(schedule["Target"]["Input"])


def ticks(made: Synthesised) -> dict[str, RemoteTick]:
    """Return what the Lambda reads, by the name of the rule or schedule."""
    found = {}
    for name, rendered in handed_over(made):
        tick = decode_request(json.loads(rendered))
        assert isinstance(tick, RemoteTick)
        found[name] = tick
    return found


@pytest.mark.parametrize("app", ["pipeline", "shop", "production", "many"])
def test_every_rule_and_schedule_names_its_job_and_the_time(request: pytest.FixtureRequest, app: str) -> None:
    made: Synthesised = request.getfixturevalue(app)
    planned = {job.name: job.job_id for job in made.app.plan.schedules if job.kind != "tick"}
    assert planned
    assert ticks(made) == {name: RemoteTick(job_id=job_id, time=DUE) for name, job_id in planned.items()}


def test_the_jobs_are_those_that_the_functions_know(shop: Synthesised) -> None:
    """A tick of a job that its Lambda does not find is refused."""
    known = {job.job_id for job in plan_jobs(read_manifest(manifest_of(SHOP, register_shop)).catalog)}
    assert {tick.job_id for tick in ticks(shop).values()} <= known
    assert {job.job_id for job in shop.app.plan.schedules} == known


def test_an_id_that_looks_like_a_placeholder_is_handed_over_as_it_is(tmp_path: Path) -> None:
    function_id = 'odd::<time> "<aws.scheduler.scheduled-time>" ü\\'

    def register(worker: Worker) -> None:
        worker.function(function_id, triggers=[Cron("0 0 3 * * *"), Cron("0 0 3 * * *", timezone="Europe/Berlin")])(
            print
        )

    config = Config(stream=StreamConfig(auth="iam"), aws=AwsConfig(app="odd"))
    made = synthesise(tmp_path, manifest=manifest_of(config, register), alarms=False)
    assert {tick.job_id for tick in ticks(made).values()} == {
        f"{function_id}|0 0 3 * * *|UTC",
        f"{function_id}|0 0 3 * * *|Europe/Berlin",
    }


def test_the_minute_rule_hands_over_its_own_event_which_the_tick_reads(pipeline: Synthesised) -> None:
    rule = pipeline.core.properties(pipeline.core.one("AWS::Events::Rule", ScheduleExpression="cron(* * * * ? *)"))
    (target,) = rule["Targets"]
    assert not {"Input", "InputPath", "InputTransformer"} & target.keys()
    event = json.loads((ROOT / "events" / "schedule" / "minute-tick.json").read_text())
    assert re.search(rf"rule/{rule['Name']}$", event["resources"][0])
    tick = parse_event({**event, "time": TIME})
    assert isinstance(tick, CronTick)
    assert tick.scheduled_at == DUE
