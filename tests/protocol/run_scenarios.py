"""The scenarios of the search, by name."""

from __future__ import annotations

from tests.protocol.run_rules import Scenario
from tests.protocol.run_workflow import Script

_STEP = Script(("A",))
_WAIT = Script(("signal",))
_CHAIN = Script(("A", "signal", "continue"), ("B",))
_CALL = Script(("call",))

QUEUE = Scenario("queue", outcomes=2)
REPEATED_SIGNAL = Scenario("a repeated signal", repeats=True)
TWO_SIGNALS = Scenario("two signals", clients=("signal 1", "signal 2"), deadline=False)
CLIENT_START = Scenario("client start", starts=(), clients=("start 1", "signal 1"))
CANCEL = Scenario("cancel", clients=("cancel",))
CANCEL_AND_SIGNAL = Scenario("cancel and signal", clients=("signal 1", "cancel"), deadline=False)
TERMINATE = Scenario("terminate", clients=("signal 1", "terminate"))
CONTINUE_AS_NEW = Scenario("continue-as-new", workflow=_CHAIN)
REPEATED_IN_CHAIN = Scenario("continue-as-new, a repeated signal", _CHAIN, repeats=True, deadline=False)
CALL = Scenario("call", workflow=_CALL, clients=())
CALL_AND_TERMINATE = Scenario("call and terminate", workflow=_CALL, clients=("terminate",), deadline=False)
REUSE = Scenario("reuse", workflow=_STEP, starts=(1, 2), late=(1,), clients=())
CHUNKS = Scenario("chunks", chunks=True, deadline=False, outcomes=2)
PARENT = Scenario("parent", workflow=_STEP, parent=True, clients=("signal 1", "terminate"), outcomes=2)

# A run that was started already, and is asked for again.
SIGNAL_WITH_START = Scenario(
    "signal-with-start", _WAIT, starts=(), clients=("signal 1 with start 1", "signal 2 with start 2"), deadline=False
)
SIGNAL_BEFORE_START = Scenario("signal before the first write", clients=("signal 1 with start 1",), deadline=False)
TERMINATE_EXISTING = Scenario("terminate existing", _STEP, starts=(1, 2), late=(1, 2), clients=(), conflict="terminate")
TERMINATE_WAITING = Scenario(
    "terminate existing, a parent", _WAIT, starts=(1, 2), clients=(), conflict="terminate", parent=True
)
TWO_REPLACE = Scenario("two clients replace", _STEP, clients=("start 2", "start 3"))
MESSAGE_AND_CLIENT_REPLACE = Scenario("a message and a client replace", _STEP, (1, 2), (1, 2), ("start 3",))
PARK = Scenario("park", limit=2, clients=("signal 1", "resume"), deadline=False)
PARK_AND_CANCEL = Scenario("park and cancel", _WAIT, limit=1, clients=("cancel", "resume"))

# Every reply may be lost.
LOSSES = frozenset({"create", "acquire", "append", "suspend", "close", "replace", "continue as new"})
LOST_REPLIES = Scenario("lost replies", losses=LOSSES)
LOST_REPEATED = Scenario(
    "lost replies, a repeated signal",
    Script(("signal", "signal")),
    clients=("signal 1", "signal 2"),
    repeats=True,
    deadline=False,
    losses=frozenset({"suspend"}),
)
LOST_IN_CHAIN = Scenario("lost replies, continue-as-new", _CHAIN, losses=LOSSES, deadline=False)

SCENARIOS = (
    QUEUE,
    REPEATED_SIGNAL,
    TWO_SIGNALS,
    CLIENT_START,
    CANCEL,
    CANCEL_AND_SIGNAL,
    TERMINATE,
    CONTINUE_AS_NEW,
    REPEATED_IN_CHAIN,
    CALL,
    CALL_AND_TERMINATE,
    REUSE,
    CHUNKS,
    PARENT,
    SIGNAL_WITH_START,
    SIGNAL_BEFORE_START,
    TERMINATE_EXISTING,
    TERMINATE_WAITING,
    TWO_REPLACE,
    MESSAGE_AND_CLIENT_REPLACE,
    PARK,
    PARK_AND_CANCEL,
    LOST_REPLIES,
    LOST_REPEATED,
    LOST_IN_CHAIN,
)
"""What is searched every day."""

LARGE = (
    TERMINATE_WAITING._replace(name="terminate existing, a parent, late duplicates", late=(1,)),
    Scenario("three executors", executors=3),
    Scenario("three executors, two signals", clients=("signal 1", "signal 2"), deadline=False, executors=3),
    TERMINATE._replace(name="terminate, three executors", executors=3),
    REUSE._replace(name="reuse, three executors", executors=3, late=(1, 2)),
    CHUNKS._replace(name="chunks with a deadline, a repeated signal", deadline=True, repeats=True),
    TWO_REPLACE._replace(name="three clients replace", clients=("start 2", "start 3", "start 2")),
    SIGNAL_WITH_START._replace(
        name="signal-with-start, a chain", workflow=_CHAIN, clients=("signal 1 with start 1", "signal 2 with start 1")
    ),
    LOST_REPEATED._replace(name="every lost reply, a repeated signal", losses=LOSSES),
)
"""What takes too long for every day."""
