"""What AWS cannot do, or would silently get wrong, is said with its place and a way out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from iii_runtime import Cron, DurableSubscriber, Http, Queue, Subscribe, register_worker
from iii_runtime.core.config import AwsConfig, Config, HttpConfig, QueueConfig
from iii_runtime.core.registry import Catalog
from iii_runtime.plan.checks import check_app
from iii_runtime.plan.names import Deployment
from tests.unit.planning import AWS, DEV, add, config_with, messages, planned, refused, seconds, worker_with


def test_a_function_has_to_end_before_the_dispatcher() -> None:
    assert planned(worker_with(timeout=seconds(870))).warnings == ()
    (finding,) = refused(worker_with(timeout=seconds(870.5)))
    assert finding.where.partition(":")[0].endswith("planning.py")
    assert finding.message == (
        "function 'shop::pay' may run for 870.5 s, on AWS 870 s is the longest. Lower its `timeout`, and split the "
        "work over several messages."
    )


def test_a_workflow_cannot_be_deployed_yet_and_the_error_says_so() -> None:
    worker = register_worker()

    @worker.workflow("orders::fulfil")
    async def fulfil(ctx: object) -> None: ...

    (finding,) = refused(worker)
    assert finding.level == "error"
    assert "'orders::fulfil' is a workflow" in finding.message


def test_the_timeout_of_the_worker_counts_for_a_function_without_one() -> None:
    worker = register_worker(options={"invocation_timeout_ms": 900_000})
    add(worker, "shop::pay")
    assert refused(worker)[0].message.startswith("function 'shop::pay' may run for 900 s")


def test_a_function_slower_than_the_http_api_is_worth_a_warning() -> None:
    assert planned(worker_with(Http("GET", "/a"), timeout=seconds(30))).warnings == ()
    (finding,) = planned(worker_with(Http("GET", "/a"), timeout=seconds(31))).warnings
    assert finding.message.startswith("function 'shop::pay' may run for 31 s, and an HTTP API waits 30 s")
    assert "answered with 504 after 29 s, and the run is ended then" in finding.message
    assert planned(worker_with(Queue("default"), timeout=seconds(31))).warnings == ()


QUEUES: list[tuple[QueueConfig, str]] = [
    (
        QueueConfig(name="q", concurrency=1001, line=8),
        "queue 'q' has a concurrency of 1001; AWS takes 1000 at most. Lower `concurrency`.",
    ),
    (
        QueueConfig(name="q", max_retries=971, line=8),
        "queue 'q' allows 971 attempts; on AWS 970 are the most. Lower `max_retries`.",
    ),
    (
        QueueConfig(name="q", max_retries=60, backoff_ms=60_000, line=8),
        (
            "queue 'q': a message could need more than 13 days for its 60 attempts, and SQS forgets it after 14. Lower "
            "`max_retries`, the back-off, or the timeout of its function."
        ),
    ),
]


@pytest.mark.parametrize(("queue", "message"), QUEUES)
def test_a_queue_beyond_the_limits_of_sqs_is_refused(queue: QueueConfig, message: str) -> None:
    (finding,) = refused(worker_with(), config_with(queue))
    assert (finding.where, finding.message) == ("iii-config.yaml:8", message)


def test_a_queue_at_the_limits_of_sqs_is_accepted() -> None:
    queues = (QueueConfig(name="a", concurrency=1000), QueueConfig(name="b", max_retries=970, backoff_ms=0))
    plan = planned(worker_with(), config_with(*queues))
    assert plan.queues["b"].max_receives == 1000
    assert plan.warnings == ()


def test_the_visibility_counts_for_how_long_a_message_may_live() -> None:
    """970 attempts without a wait, each up to 900 s."""
    queue = QueueConfig(name="q", max_retries=970, backoff_ms=0)
    assert planned(worker_with(Queue("q"), timeout=seconds(800)), config_with(queue)).queues["q"].max_receives == 1000
    waits = QueueConfig(name="q", max_retries=970, backoff_ms=120)
    assert (
        "could need more than 13 days"
        in refused(worker_with(Queue("q"), timeout=seconds(800)), config_with(waits))[0].message
    )


def test_the_attempts_of_a_fifo_queue_in_batches_have_to_fit_the_receives() -> None:
    queue = QueueConfig(name="q", type="fifo", message_group_field="id", max_retries=100)
    (finding,) = refused(worker_with(Queue("q", batch_size=10)), config_with(queue))
    assert finding.message == (
        "queue 'q' is read in batches of 10: its 100 attempts need 1030 receives, and SQS counts to 1000. "
        "Lower `max_retries` or `batch_size`."
    )


def test_the_attempts_of_a_subscription_are_checked_where_it_is_registered() -> None:
    (finding,) = refused(worker_with(DurableSubscriber("t", max_retries=970)))
    assert finding.where.partition(":")[0].endswith("planning.py")
    assert "Lower `maxRetries`." in finding.message


def test_a_batch_does_not_go_with_one_message_at_a_time() -> None:
    queue = QueueConfig(name="q", concurrency=1)
    (finding,) = refused(worker_with(Queue("q", batch_size=2)), config_with(queue))
    assert finding.message.startswith("queue trigger of 'shop::pay': batch_size 2 does not go with `concurrency: 1`")


def test_a_batch_of_the_dispatcher_has_no_effect() -> None:
    worker = worker_with(Queue("q", batch_size=2))
    add(worker, "shop::other", Queue("q"))
    plan = planned(worker, config_with(QueueConfig(name="q")))
    assert "the dispatcher takes its messages, one at a time" in plan.warnings[0].message
    assert plan.queues["q"].batch_size == 1


def test_of_two_triggers_for_one_queue_the_first_counts() -> None:
    worker = worker_with(Queue("q"), Queue("q", batch_size=2))
    plan = planned(worker, config_with(QueueConfig(name="q")))
    assert "an earlier trigger binds the function to queue 'q', and counts" in plan.warnings[0].message
    assert plan.queues["q"].batch_size == 1


def test_a_reserved_concurrency_below_that_of_its_queues_is_refused() -> None:
    config = config_with(QueueConfig(name="a", concurrency=3), QueueConfig(name="b", concurrency=1))
    assert planned(worker_with(Queue("a"), Queue("b"), reserved_concurrency=5), config).warnings == ()
    (finding,) = refused(worker_with(Queue("a"), Queue("b"), reserved_concurrency=4), config)
    assert "reserves a concurrency of 4, and its queues ('a', 'b') start up to 5 at once" in finding.message


def test_more_reserved_than_an_account_has_is_worth_a_warning() -> None:
    worker = worker_with(reserved_concurrency=600)
    add(worker, "shop::other", reserved_concurrency=400)
    (finding,) = planned(worker).warnings
    assert finding.where == "iii-config.yaml:3"
    assert finding.message.startswith("the functions reserve a concurrency of 1000 together")


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [("a::b", "a--b", "shop-dev-f-a--b"), ("a::b c", "a::b-c", "shop-dev-f-a--b-c")],
)
def test_two_functions_whose_names_come_out_alike_are_refused(first: str, second: str, name: str) -> None:
    worker = worker_with(function_id=first)
    add(worker, second)
    (finding,) = refused(worker)
    assert finding.message == f"the functions '{first}' and '{second}' would both be called '{name}'. Rename one."


def test_two_queues_or_topics_whose_names_come_out_alike_are_refused() -> None:
    config = config_with(QueueConfig(name="a.b", line=5), QueueConfig(name="a-b", line=6))
    (finding,) = refused(worker_with(), config)
    assert (finding.where, finding.message) == (
        "iii-config.yaml:6",
        "the queues 'a.b' and 'a-b' would both be called 'shop-dev-q-a-b'. Rename one.",
    )
    worker = worker_with(DurableSubscriber("a.b"))
    add(worker, "shop::other", DurableSubscriber("a-b"))
    (finding,) = refused(worker)
    assert finding.message.startswith("the topics 'a.b' and 'a-b' would both be called 'shop-dev-t-a-b'")


def test_an_app_whose_names_could_be_those_of_another_is_refused() -> None:
    deployment = Deployment(app="shop-dev-q", stage="qa", region=DEV.region, account=DEV.account)
    (finding,) = refused(worker_with(), config_with(aws=AwsConfig(app="shop-dev-q", line=3)), deployment)
    assert finding.where == "iii-config.yaml:3"
    assert finding.message.startswith("app 'shop-dev-q' has the part '-q'")


USES: list[tuple[str, str, str]] = [
    ("shop::pya", "error", "uses 'shop::pya', a function that is not registered (did you mean 'shop::pay'?)."),
    ("queue:mial", "error", "uses 'queue:mial', a queue that is not in queue_configs (did you mean 'mail'?)."),
    ("topic:pied", "warning", "uses 'topic:pied', a topic nobody subscribes to (did you mean 'paid'?)."),
    ("state::get", "warning", "uses 'state::get', which is open to every function; `uses` need not name it."),
]


@pytest.mark.parametrize(("use", "level", "message"), USES)
def test_uses_that_name_nothing_are_found_with_a_suggestion(use: str, level: str, message: str) -> None:
    worker = worker_with(Subscribe("paid"), uses=[use, "queue:default", "topic:paid", "shop::pay"])
    config = config_with(QueueConfig(name="mail"))
    found = refused(worker, config) if level == "error" else planned(worker, config).warnings
    (finding,) = found
    assert finding.level == level
    assert finding.message.startswith(f"function 'shop::pay' {message}")


def test_a_schedule_whose_years_have_passed_is_refused_once_the_present_is_known() -> None:
    worker = worker_with(Cron("0 0 0 1 1 * 2020-2025"))
    assert planned(worker).warnings == ()
    (finding,) = refused(worker, now=datetime(2026, 1, 1, tzinfo=UTC))
    assert "'0 0 0 1 1 * 2020-2025' never fires again" in finding.message
    assert planned(worker, now=datetime(2024, 12, 1, tzinfo=UTC)).warnings == ()


def test_more_rules_and_routes_than_aws_gives_are_worth_a_warning() -> None:
    routes = [Http("GET", f"/r{number}") for number in range(301)]
    (finding,) = planned(worker_with(*routes)).warnings
    assert finding.message.startswith("there are 301 routes, and an HTTP API has 300")
    worker = register_worker()
    for number in range(301):
        worker.registry.add_trigger(Cron(f"0 {number % 60} {number // 60} * * *"), "shop::pay")
    add(worker, "shop::pay")
    found = refused(worker)[0].message, check_app(config_with(), Catalog.of([worker.registry]))
    assert found[0].startswith("the core stack would have about ")
    assert messages(found[1])[0].startswith("301 cron triggers become EventBridge rules, and an account has 300")


def test_one_failing_message_that_holds_up_its_queue_for_long_is_worth_a_warning_on_any_host() -> None:
    short = QueueConfig(name="short", concurrency=1, max_retries=10, backoff_ms=1000, line=4)
    long = replace(short, name="long", max_retries=11, line=5)
    side_by_side = replace(long, name="side", concurrency=2, line=6)
    findings = check_app(Config(queues={q.name: q for q in (short, long, side_by_side)}), Catalog.of([]))
    assert [(finding.level, finding.where) for finding in findings] == [("warning", "the default configuration:5")]
    assert findings[0].message.startswith("queue 'long' handles one message after the other")


def test_a_subscription_that_holds_itself_up_is_told_where_it_is_registered() -> None:
    worker = worker_with(DurableSubscriber("t", fifo=True, max_retries=20))
    (finding,) = check_app(Config(), Catalog.of([worker.registry]))
    assert finding.where.partition(":")[0].endswith("planning.py")


def test_a_host_on_this_machine_only_warns_and_only_if_the_app_is_meant_for_aws() -> None:
    worker = worker_with(Http("GET", "/a"), timeout=seconds(1000))
    catalog = Catalog.of([worker.registry])
    assert check_app(Config(), catalog) == []
    findings = check_app(Config(aws=AWS), catalog)
    assert {finding.level for finding in findings} == {"warning"}
    assert messages(findings)[0].startswith("function 'shop::pay' may run for 1000 s")


def test_a_host_on_this_machine_asks_nobody_who_may_call() -> None:
    worker = worker_with(Http("GET", "/a"))
    assert check_app(Config(aws=AWS, http=HttpConfig()), Catalog.of([worker.registry])) == []


def test_a_trigger_without_a_place_has_that_of_its_function() -> None:
    worker = worker_with()
    config: dict[str, Any] = {"queue": "mail"}
    worker.register_trigger({"type": "queue", "function_id": "shop::pay", "config": config})
    (finding,) = check_app(Config(), Catalog.of([worker.registry]))
    assert finding.where == worker.registry.functions()[0].source
