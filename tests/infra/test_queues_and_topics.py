"""Queues with their dead letters, and the topics that send to them."""

from __future__ import annotations

from iii_runtime.plan.names import Deployment
from tests.infra.synthesis import Synthesised

NAMES = Deployment(app="shop", stage="dev", region="eu-west-1", account="111122223333")


def test_an_ordered_queue_is_fifo_with_a_fifo_dead_letter_queue(shop: Synthesised) -> None:
    for name in ("pay", "mail"):
        for kind in ("q", "d"):
            queue = shop.core.one("AWS::SQS::Queue", QueueName=f"shop-dev-{kind}-{name}.fifo")["Properties"]
            assert queue["FifoQueue"] is True
            assert "ContentBasedDeduplication" not in queue
            assert (queue["DeduplicationScope"], queue["FifoThroughputLimit"]) == ("messageGroup", "perMessageGroupId")


def test_every_queue_is_encrypted_denies_plain_http_and_keeps_messages_for_14_days(shop: Synthesised) -> None:
    queues = shop.core.of("AWS::SQS::Queue")
    guarded = set()
    for policy in shop.core.of("AWS::SQS::QueuePolicy").values():
        denied = [each for each in policy["Properties"]["PolicyDocument"]["Statement"] if each["Effect"] == "Deny"]
        if any(each["Condition"] == {"Bool": {"aws:SecureTransport": "false"}} for each in denied):
            guarded |= {queue["Ref"] for queue in policy["Properties"]["Queues"]}
    assert guarded == set(queues)
    for queue in queues.values():
        properties = queue["Properties"]
        assert properties["SqsManagedSseEnabled"] is True
        expected = 3600 if properties["QueueName"] == "shop-dev-x-tick" else 14 * 24 * 3600
        assert properties["MessageRetentionPeriod"] == expected


def test_a_message_stays_hidden_longer_than_its_consumer_can_run(shop: Synthesised) -> None:
    timeouts = {
        each["Properties"]["FunctionName"]: each["Properties"]["Timeout"]
        for each in shop.core.of("AWS::Lambda::Function").values()
    }
    checked = 0
    for mapping in shop.core.of("AWS::Lambda::EventSourceMapping").values():
        properties = shop.core.properties(mapping)
        name = properties["EventSourceArn"].rpartition(":")[2]
        if ":sqs:" in properties["EventSourceArn"]:
            queue = shop.core.one("AWS::SQS::Queue", QueueName=name)["Properties"]
            assert queue["VisibilityTimeout"] > timeouts[properties["FunctionName"]]
            checked += 1
    assert checked == 8


def test_a_topic_fans_out_to_the_queue_of_each_subscription_as_it_was_published(shop: Synthesised) -> None:
    core = shop.core
    topic = core.one("AWS::SNS::Topic", TopicName="shop-dev-t-order-paid.fifo")
    assert topic["Properties"]["FifoTopic"] is True
    arn = f"arn:aws:sns:eu-west-1:111122223333:{topic['Properties']['TopicName']}"
    subscriptions = [
        core.properties(each)
        for each in core.of("AWS::SNS::Subscription").values()
        if each["Properties"]["Protocol"] == "sqs"
    ]
    paid = [each for each in subscriptions if each["TopicArn"] == arn]
    assert len(paid) == 2
    redriven = {}
    for each in subscriptions:
        assert each["RawMessageDelivery"] is True
        redriven[each["Endpoint"].rpartition(":")[2]] = each["RedrivePolicy"]["deadLetterTargetArn"]
    assert redriven == {
        "shop-dev-q-topic-order-paid-shop--ledger.fifo": NAMES.queue_arn(
            "shop-dev-d-topic-order-paid-shop--ledger.fifo"
        ),
        "shop-dev-q-topic-refund-shop--ledger": NAMES.queue_arn("shop-dev-d-topic-refund-shop--ledger"),
        # A FIFO topic needs a FIFO queue for what it cannot deliver, and this subscription has none of its own.
        "shop-dev-q-topic-order-paid-shop--audit": NAMES.queue_arn("shop-dev-x-topic-failures.fifo"),
    }


def test_only_the_topic_may_send_to_the_queues_of_its_subscriptions(shop: Synthesised) -> None:
    core = shop.core
    senders: dict[str, set[str]] = {}
    for policy in core.of("AWS::SQS::QueuePolicy").values():
        for statement in core.text(policy["Properties"]["PolicyDocument"]["Statement"]):
            if statement["Effect"] == "Allow" and statement["Principal"] == {"Service": "sns.amazonaws.com"}:
                queue = statement["Resource"].rpartition(":")[2]
                senders.setdefault(queue, set()).add(statement["Condition"]["ArnLike"]["aws:SourceArn"])
    subscribed = {queue for topic in shop.app.plan.topics for queue in topic.queues}
    assert senders.pop("shop-dev-x-topic-failures.fifo") == {NAMES.topic_pattern}
    assert set(senders) == subscribed | {queue.replace("-q-", "-d-") for queue in subscribed}
    assert all(len(topics) == 1 and "*" not in str(topics) for topics in senders.values())
