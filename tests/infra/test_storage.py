"""The table, the bucket and the topic of progress."""

from __future__ import annotations

from tests.infra.synthesis import Synthesised


def test_the_table_has_its_indexes_its_stream_and_its_expiry(shop: Synthesised) -> None:
    table = shop.core.one("AWS::DynamoDB::GlobalTable", TableName="shop-dev")["Properties"]
    assert [(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]] == [("pk", "HASH"), ("sk", "RANGE")]
    indexes = {
        each["IndexName"]: ([key["AttributeName"] for key in each["KeySchema"]], each["Projection"]["ProjectionType"])
        for each in table["GlobalSecondaryIndexes"]
    }
    assert indexes == {
        "letters": (["dq", "dt"], "KEYS_ONLY"),
        "names": (["nk", "nr"], "KEYS_ONLY"),
        "wake": (["ws", "wa"], "KEYS_ONLY"),
    }
    types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    assert types == {"pk": "S", "sk": "S", "dq": "S", "dt": "N", "ws": "N", "wa": "N", "nk": "S", "nr": "S"}
    assert table["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    assert table["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["Replicas"][0]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


def test_the_bucket_takes_no_request_without_tls_1_2(shop: Synthesised) -> None:
    policy = shop.core.one("AWS::S3::BucketPolicy")["Properties"]["PolicyDocument"]["Statement"]
    denied = [each["Condition"] for each in policy if each["Effect"] == "Deny"]
    assert {"Bool": {"aws:SecureTransport": "false"}} in denied
    assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in denied


def test_what_nothing_names_any_more_leaves_the_bucket(shop: Synthesised) -> None:
    bucket = shop.core.one("AWS::S3::Bucket")["Properties"]
    rules = {each["Id"]: each for each in bucket["LifecycleConfiguration"]["Rules"]}
    assert (rules["payloads"]["Prefix"], rules["payloads"]["ExpirationInDays"]) == ("payloads/", 60)
    assert rules["replaced-state"]["TagFilters"] == [{"Key": "iii-expire", "Value": "true"}]
    assert (rules["replaced-state"]["Prefix"], rules["replaced-state"]["ExpirationInDays"]) == ("state/", 7)
    assert (rules["responses"]["Prefix"], rules["responses"]["ExpirationInDays"]) == ("responses/", 2)
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert shop.core.text(bucket["BucketName"]) == "shop-dev-blobs-111122223333-eu-west-1"


def test_the_progress_of_streams_is_published_encrypted(shop: Synthesised) -> None:
    topic = shop.core.one("AWS::SNS::Topic", TopicName="shop-dev-x-progress")["Properties"]
    assert topic["KmsMasterKeyId"] == "alias/aws/sns"
