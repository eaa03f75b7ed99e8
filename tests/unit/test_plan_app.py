"""What is to be created for an app in a stage."""

from __future__ import annotations

import json

import pytest

from iii_runtime import Cron, DurableSubscriber, Http, OnState, Queue, Subscribe, register_worker
from iii_runtime.core.config import Config, CorsConfig, HttpConfig, JwtConfig, QueueConfig, StreamConfig
from iii_runtime.plan.app_plan import PlannedRoute
from iii_runtime.plan.findings import AppInvalidError
from tests.unit.planning import (
    DECIDED,
    DEV,
    PROD,
    add,
    config_with,
    function_of,
    messages,
    planned,
    refused,
    seconds,
    staged,
    worker_with,
)

MAIL = QueueConfig(name="mail", max_retries=4, concurrency=5, line=9)
JWT = JwtConfig(issuer="https://login.example.com", audience=("shop",))


class TestFunctions:
    def test_every_registered_function_has_a_lambda_with_room_for_its_outcome(self) -> None:
        plan = planned(worker_with(timeout=seconds(12.5)))
        function = function_of(plan)
        assert (function.name, function.function_id, function.role) == ("shop-dev-f-shop--pay", "shop::pay", None)
        assert function.handler == "iii_runtime.hosts.aws_lambda.function.handler"
        assert (function.timeout, function.memory_mb, function.reserved_concurrency) == (seconds(28), 512, None)
        assert function.environment == {
            "III_APP": "shop",
            "III_STAGE": "dev",
            "III_ACCOUNT": "123456789012",
            "III_LOG_LEVEL": "INFO",
            "III_FUNCTION": "shop::pay",
        }
        assert function.source.startswith(__file__.replace("test_plan_app", "planning"))

    def test_a_function_has_what_it_asks_for_and_the_stage_gives_the_rest(self) -> None:
        worker = worker_with(memory_mb=2048, reserved_concurrency=7, environment={"MODE": "fast"})
        add(worker, "shop::plain")
        plan = planned(worker, config_with(aws=staged(memory_mb=256)))
        asked, plain = function_of(plan), function_of(plan, "shop::plain")
        assert (asked.memory_mb, asked.reserved_concurrency, asked.environment["MODE"]) == (2048, 7, "fast")
        assert (plain.memory_mb, plain.reserved_concurrency) == (256, None)

    def test_the_source_of_a_secret_is_that_of_the_stage(self) -> None:
        function = function_of(planned(worker_with(secrets={"CARD": "ssm:/shop/{stage}/card"})))
        assert function.secrets == {"CARD": "ssm:/shop/dev/card"}
        assert json.loads(function.environment["III_SECRETS"]) == {"CARD": "ssm:/shop/dev/card"}

    def test_a_condition_brings_its_settings_into_the_lambda_it_runs_in(self) -> None:
        worker = worker_with(OnState("orders", condition="shop::open"), environment={"MODE": "fast"})
        add(worker, "shop::open", secrets={"KEY": "ssm:/key"}, environment={"HOURS": "9-17"})
        function = function_of(planned(worker))
        assert function.secrets == {"KEY": "ssm:/key"}
        assert (function.environment["MODE"], function.environment["HOURS"]) == ("fast", "9-17")

    def test_settings_that_a_function_and_its_condition_give_differently_are_refused(self) -> None:
        worker = worker_with(OnState("orders", condition="shop::open"), environment={"MODE": "fast"})
        add(worker, "shop::open", environment={"MODE": "slow"})
        (finding,) = refused(worker)
        assert "'shop::pay' and its condition 'shop::open' run in one Lambda" in finding.message

    def test_the_runtimes_own_lambdas_outlive_what_they_run(self) -> None:
        worker = worker_with(timeout=seconds(100))
        add(worker, "shop::slow", timeout=seconds(869.2))
        plan = planned(worker)
        own = {function.role: function for function in plan.functions.values() if function.role is not None}
        assert own.keys() == {"dispatcher", "control", "tick", "feed", "websocket"}
        assert own["dispatcher"].timeout == seconds(900)
        assert own["control"].timeout == seconds(900)
        assert all(function.timeout <= seconds(900) for function in plan.functions.values())
        assert own["feed"].handler == "iii_runtime.hosts.aws_lambda.feed.handler"
        assert "III_FUNCTION" not in own["feed"].environment

    def test_the_change_feed_waits_for_the_slowest_function_that_a_change_starts(self) -> None:
        worker = worker_with(OnState("orders"), timeout=seconds(100))
        add(worker, "shop::slow", timeout=seconds(400))
        assert [f.timeout for f in planned(worker).functions.values() if f.role == "feed"] == [seconds(175)]
        add(worker, "shop::slowest", OnState("orders"), timeout=seconds(869))
        assert [f.timeout for f in planned(worker).functions.values() if f.role == "feed"] == [seconds(900)]

    def test_every_lambda_that_a_chain_of_messages_can_come_by_may_be_in_it_often(self) -> None:
        """Any function can be enqueued to a queue of the dispatcher."""
        consuming = {f.role or f.function_id for f in planned(worker_with()).functions.values() if f.consumes}
        assert consuming == {"shop::pay", "dispatcher"}

    def test_an_environment_above_4_kb_is_refused(self) -> None:
        (finding,) = refused(worker_with(environment={"BIG": "x" * 4096}))
        assert finding.where == function_of(planned(worker_with())).source
        assert finding.message.startswith(
            "function 'shop::pay': its environment has 4220 bytes as JSON, and a Lambda takes 4096."
        )

    def test_an_environment_is_measured_as_the_json_that_lambda_measures(self) -> None:
        """The secrets are JSON in a variable, and that is JSON once more."""
        secrets = {f"NAME_{number:02}": f"ssm:/{'x' * 45}-{number:02}" for number in range(58)}
        names_and_values = len("III_SECRETS") + len(json.dumps(secrets, separators=(",", ":")))
        assert names_and_values < 3950
        (finding,) = refused(worker_with(secrets=secrets))
        assert "bytes as JSON, and a Lambda takes 4096." in finding.message


class TestQueues:
    def test_a_queue_with_one_bound_function_is_consumed_by_its_lambda(self) -> None:
        queue = planned(worker_with(Queue("mail"), timeout=seconds(60)), config_with(MAIL)).queues["mail"]
        assert (queue.name, queue.letter_name) == ("shop-dev-q-mail", "shop-dev-d-mail")
        assert (queue.consumer, queue.batch_size, queue.max_concurrency) == ("shop-dev-f-shop--pay", 1, 5)
        assert (queue.visibility, queue.max_receives) == (seconds(60 + 15 + 30), 4 + 30)
        assert queue.source == "iii-config.yaml:9"

    def test_a_batch_multiplies_how_long_its_lambda_runs_and_its_messages_stay_hidden(self) -> None:
        worker = worker_with(Queue("mail", batch_size=10), timeout=seconds(60))
        plan = planned(worker, config_with(MAIL))
        queue = plan.queues["mail"]
        assert function_of(plan).timeout == seconds(60 * 10 + 15)
        assert (queue.batch_size, queue.visibility, queue.max_receives) == (10, seconds(600 + 15 + 30), 4 * 10 + 30)

    def test_a_batch_that_does_not_fit_into_an_invocation_is_refused(self) -> None:
        worker = worker_with(Queue("mail", batch_size=10), timeout=seconds(89))
        (finding,) = refused(worker, config_with(MAIL))
        assert finding.message.startswith("function 'shop::pay' takes 10 messages of queue 'mail' at a time")
        assert "that may take 905 s, and a Lambda runs for 900 s at most." in finding.message
        fits = worker_with(Queue("mail", batch_size=10), timeout=seconds(88.5))
        assert "905 s" in refused(fits, config_with(MAIL))[0].message  # a Lambda counts in whole seconds
        fits = worker_with(Queue("mail", batch_size=10), timeout=seconds(88))
        assert function_of(planned(fits, config_with(MAIL))).timeout == seconds(895)

    def test_a_fifo_queue_in_batches_grants_the_receives_of_neighbours(self) -> None:
        fifo = QueueConfig(name="pay", type="fifo", message_group_field="id", max_retries=4)
        queue = planned(worker_with(Queue("pay", batch_size=5)), config_with(fifo)).queues["pay"]
        assert (queue.name, queue.letter_name) == ("shop-dev-q-pay.fifo", "shop-dev-d-pay.fifo")
        assert queue.max_receives == 4 * 5 + 30

    @pytest.mark.parametrize("bound", [0, 2])
    def test_a_queue_of_no_single_function_goes_to_the_dispatcher(self, bound: int) -> None:
        worker = register_worker()
        for number in range(2):
            add(worker, f"shop::f{number}", *([Queue("mail")] if number < bound else []), timeout=seconds(40))
        queue = planned(worker, config_with(MAIL)).queues["mail"]
        assert queue.consumer == "shop-dev-x-dispatcher"
        assert (queue.visibility, queue.max_receives, queue.batch_size) == (seconds(40 + 30 + 30), 34, 1)

    def test_a_concurrency_of_1_is_a_fifo_queue_and_the_least_that_aws_takes(self) -> None:
        single = QueueConfig(name="one", concurrency=1)
        queue = planned(worker_with(Queue("one")), config_with(single)).queues["one"]
        assert (queue.name, queue.max_concurrency) == ("shop-dev-q-one.fifo", 2)

    def test_a_subscription_has_its_own_queue_and_its_topic_a_fifo_one_if_it_keeps_an_order(self) -> None:
        worker = worker_with(DurableSubscriber("paid"))
        add(worker, "shop::book", DurableSubscriber("paid", fifo=True))
        add(worker, "shop::mail", DurableSubscriber("sent"))
        plan = planned(worker)
        assert [(topic.topic, topic.name, topic.ordered) for topic in plan.topics] == [
            ("paid", "shop-dev-t-paid.fifo", True),
            ("sent", "shop-dev-t-sent", False),
        ]
        names = [plan.queues[name].name for name in ("topic/paid/shop::pay", "topic/paid/shop::book")]
        assert plan.topics[0].queues == tuple(names)
        assert names == ["shop-dev-q-topic-paid-shop--pay", "shop-dev-q-topic-paid-shop--book.fifo"]
        assert plan.queues["topic/paid/shop::book"].consumer == "shop-dev-f-shop--book"

    def test_a_topic_without_durable_subscribers_needs_nothing(self) -> None:
        assert planned(worker_with(Subscribe("news"))).topics == ()


class TestRoutes:
    def test_a_route_is_written_as_api_gateway_has_it(self) -> None:
        worker = worker_with(Http("get", "orders/:order_id/items/{item}"), Http("GET", "/", auth="none"))
        first, second, *_ = planned(worker).routes
        assert first == PlannedRoute(
            method="GET",
            path="/orders/{order_id}/items/{item}",
            function="shop-dev-f-shop--pay",
            auth="iam",
            source=first.source,
        )
        assert (second.path, second.auth) == ("/", "none")

    def test_head_goes_where_get_goes_unless_a_trigger_has_it(self) -> None:
        worker = worker_with(Http("GET", "/a", auth="none"), Http("POST", "/a"), Http("GET", "/b/:id"))
        add(worker, "shop::head", Http("HEAD", "/b/{other}"))
        routes = planned(worker).routes
        heads = {route.path: (route.function, route.auth) for route in routes if route.method == "HEAD"}
        assert heads == {
            "/a": ("shop-dev-f-shop--pay", "none"),
            "/b/{other}": ("shop-dev-f-shop--head", "iam"),
        }
        assert len(routes) == 5

    def test_head_of_a_parameter_goes_before_get_of_a_word_as_on_other_hosts(self) -> None:
        worker = worker_with(Http("GET", "/b/new"))
        add(worker, "shop::head", Http("HEAD", "/b/:id"))
        routes = [(route.method, route.path) for route in planned(worker).routes]
        assert routes == [("GET", "/b/new"), ("HEAD", "/b/{id}")]

    def test_head_routes_that_an_api_has_no_room_for_are_left_out_with_a_warning(self) -> None:
        plan = planned(worker_with(*(Http("GET", f"/r{number}") for number in range(150))))
        assert (len(plan.routes), plan.warnings) == (300, ())
        plan = planned(worker_with(*(Http("GET", f"/r{number}") for number in range(151))))
        assert {route.method for route in plan.routes} == {"GET"}
        assert plan.warnings[0].message.startswith("there are 151 routes, and with one for HEAD beside each GET")

    def test_a_stage_without_a_word_about_it_is_open_with_a_warning(self) -> None:
        config = Config(http=HttpConfig(line=7), stream=StreamConfig(line=8), source="iii-config.yaml")
        plan = planned(worker_with(Http("GET", "/a"), Http("GET", "/b"), Http("GET", "/c", auth="iam")), config)
        assert [route.auth for route in plan.routes if route.method == "GET"] == ["none", "none", "iam"]
        assert plan.stream_auth == "none"
        assert [finding.where for finding in plan.warnings] == ["iii-config.yaml:7", "iii-config.yaml:8"]
        assert plan.warnings[0].message.startswith("everybody may call GET /a, GET /b in stage dev.")

    def test_a_stage_of_production_without_a_word_about_it_is_refused_route_by_route(self) -> None:
        worker = worker_with(Http("GET", "/a"), Http("GET", "/b", auth="none"), Http("GET", "/c"))
        findings = refused(worker, Config(), PROD)
        assert [message.partition(" does not")[0] for message in messages(findings[:-1])] == [
            "http trigger of 'shop::pay': GET /a",
            "http trigger of 'shop::pay': GET /c",
        ]
        assert findings[-1].message.startswith("everybody may open a WebSocket in stage prod and join any stream.")

    def test_what_is_open_on_purpose_is_accepted_in_production(self) -> None:
        config = config_with(http=HttpConfig(auth="none"), stream=StreamConfig(auth="none"))
        plan = planned(worker_with(Http("GET", "/a")), config, PROD)
        assert plan.warnings == ()
        assert plan.stage.production

    def test_tickets_have_a_route_of_their_own_under_the_auth_of_http(self) -> None:
        config = config_with(http=HttpConfig(auth="jwt", jwt=JWT), stream=StreamConfig(auth="ticket", line=4))
        plan = planned(worker_with(), config)
        assert plan.routes == (
            PlannedRoute(
                method="POST",
                path="/_iii/stream-ticket",
                function="shop-dev-x-websocket",
                auth="jwt",
                source="iii-config.yaml:4",
            ),
        )
        assert (plan.stream_auth, plan.jwt) == ("ticket", JWT)

    def test_tickets_for_everybody_are_worth_a_warning_and_undecided_ones_an_error_in_production(self) -> None:
        open_to_all = config_with(http=HttpConfig(auth="none"), stream=StreamConfig(auth="ticket"))
        (finding,) = planned(worker_with(), open_to_all, PROD).warnings
        assert finding.message.startswith("tickets for the WebSocket are given to everybody")
        undecided = config_with(http=HttpConfig(), stream=StreamConfig(auth="ticket"))
        (finding,) = refused(worker_with(), undecided, PROD)
        assert finding.message.startswith("tickets for the WebSocket are given to everybody")

    def test_a_route_under_the_paths_of_the_runtime_is_refused(self) -> None:
        (finding,) = refused(worker_with(Http("POST", "/_iii/stream-ticket")))
        assert "POST /_iii/stream-ticket: paths under /_iii are the runtime's" in finding.message

    def test_tokens_need_an_issuer(self) -> None:
        (finding,) = refused(worker_with(Http("GET", "/a", auth="jwt")))
        assert finding.message.startswith("GET /a: `auth: jwt` takes tokens, and nothing says whose.")
        config = config_with(http=HttpConfig(jwt=JWT))
        assert planned(worker_with(Http("GET", "/a", auth="jwt")), config).routes[0].auth == "jwt"

    def test_pages_of_any_origin_with_credentials_are_worth_a_warning(self) -> None:
        config = config_with(http=HttpConfig(auth="iam", cors=CorsConfig(), line=5))
        (finding,) = planned(worker_with(Http("GET", "/a")), config).warnings
        assert (finding.where, finding.message[:21]) == ("iii-config.yaml:5", "pages of any origin m")
        exact = config_with(http=HttpConfig(auth="iam", cors=CorsConfig(allowed_origins=("https://a.example",))))
        assert planned(worker_with(Http("GET", "/a")), exact).cors == exact.http.cors

    def test_a_path_that_would_be_escaped_is_worth_a_warning(self) -> None:
        plan = planned(worker_with(Http("GET", "/größe/:id")))
        assert plan.routes[0].path == "/gr%C3%B6%C3%9Fe/{id}"
        assert "API Gateway may not match letters that are escaped" in plan.warnings[0].message


class TestWhole:
    def test_everything_that_is_wrong_is_said_at_once_errors_first(self) -> None:
        worker = worker_with(Queue("mial"), Http("GET", "/a"), Cron("0 0 * * * *"), timeout=seconds(1000))
        with pytest.raises(AppInvalidError) as caught:
            planned(worker, config_with(MAIL))
        assert caught.value.code == "app_invalid"
        assert [finding.level for finding in caught.value.findings] == ["error", "error", "warning"]
        text = str(caught.value).splitlines()
        assert len(text) == 2
        assert "queue 'mial' is not in queue_configs (did you mean 'mail'?)" in text[0]
        assert "may run for 1000 s, on AWS 870 s is the longest" in text[1]

    def test_a_trigger_of_a_function_nobody_registered_creates_nothing(self) -> None:
        worker = worker_with()
        for kind in ("http", "cron"):
            config = {"api_path": "/a"} if kind == "http" else {"expression": "0 0 * * * *"}
            worker.register_trigger({"type": kind, "function_id": "shop::gone", "config": config})
        plan = planned(worker)
        assert (plan.routes, plan.schedules) == ((), ())
        assert [finding.message.partition(":")[0] for finding in plan.warnings] == [
            "http trigger of 'shop",
            "cron trigger of 'shop",
        ]

    def test_the_same_app_gives_the_same_plan(self) -> None:
        worker = worker_with(Queue("mail"), Http("GET", "/a"), Cron("0 0 * * * *"), DurableSubscriber("t"))
        config = config_with(MAIL)
        assert planned(worker, config) == planned(worker, config)
        assert planned(worker, config).deployment == DEV

    def test_a_plan_with_tokens_for_account_and_region_can_be_made(self) -> None:
        deployment = type(DEV)(app="shop", stage="dev", region="${Region}", account="${Account}")
        plan = planned(worker_with(Queue("mail")), config_with(MAIL), deployment)
        assert function_of(plan).environment["III_ACCOUNT"] == "${Account}"
        assert planned(worker_with(), DECIDED).stack_count == 1
