"""AWS services behind the ports: DynamoDB, SQS, SNS, S3, Lambda. Loads boto3; nothing else of the runtime does."""
