"""Limits of the AWS services, and the margins kept from them."""

from __future__ import annotations

from datetime import timedelta

LAMBDA_TIMEOUT = timedelta(seconds=900)
"""Longest invocation of a Lambda."""

OUTCOME_MARGIN = timedelta(seconds=15)
"""What a Lambda has beyond its function's timeout: for the hop of a foreign message, and to write an outcome."""

DISPATCH_MARGIN = timedelta(seconds=30)
"""What the dispatcher has beyond the longest function, and what a queue's visibility has beyond its consumer."""

FUNCTION_TIMEOUT = LAMBDA_TIMEOUT - DISPATCH_MARGIN
"""Longest timeout of a function: the dispatcher has to outlive it."""

API_TIMEOUT = timedelta(seconds=30)
"""How long an HTTP API waits for an answer."""

ANSWER_TIME = timedelta(seconds=1)
"""What is kept of that, so that a function's time-out is answered before the HTTP API gives up."""

CHANGE_AGE = timedelta(hours=1)
"""Age at which a change that cannot be delivered is given up. Until then all later changes of its shard wait behind it,
whatever their key; so an hour, and not the day that DynamoDB keeps a change."""

CHANGE_ALARM_AGE = timedelta(minutes=30)
"""Highest age of a change at which an alarm is raised: early enough to do something before changes are given up."""

THROTTLE_BURST = 2**31 - 1
"""What CloudFormation takes as a number of requests at once."""

MESSAGE_LIFE = timedelta(days=13)
"""How long a message may take to use up its attempts: a day less than a queue keeps it."""

HELD_QUEUE = timedelta(minutes=15)
"""How long one failing message may hold up a queue with `concurrency: 1` before that is worth a warning."""

MIN_CONCURRENCY = 2
MAX_CONCURRENCY = 1000
"""Of an event source mapping."""

MAX_RECEIVES = 1000
"""Of a redrive policy."""

MAX_ATTEMPTS = 970
"""Most attempts of a queue: with the receives that a shared queue grants beyond them it is `MAX_RECEIVES`."""

ENVIRONMENT_BYTES = 4096
"""All environment variables of a Lambda, names and values."""

UNRESERVED_CONCURRENCY = 100
ACCOUNT_CONCURRENCY = 1000
"""What an account must leave unreserved, and what it has, unless AWS has raised it."""

API_ROUTES = 300
RULES = 300
"""Routes of an HTTP API and rules of an event bus, unless AWS has raised them."""

POLICY_CHARACTERS = 9500
"""Inline policy of a role: 10,240 less what is added for its logs."""

STACK_RESOURCES = 450
"""CloudFormation takes 500; the rest is left to what a user adds."""

ALARM_METRICS = 9
"""What one alarm adds up: it may have 10 entries, and the expression that adds them up is one."""

SCHEDULE_CHARACTERS = 256
"""Text of a cron expression."""
