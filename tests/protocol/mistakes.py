"""Mistakes an implementation could make. The search finds each of them, and says which rule it breaks."""

from __future__ import annotations

from typing import NamedTuple

from tests.protocol import delivery_mistakes as by_delivery
from tests.protocol import storage_mistakes as by_storage
from tests.protocol.delivery import Deliveries, Scenario
from tests.protocol.history import Limits
from tests.protocol.model import Storage

_MISHAPS = Scenario("one message", (None,), kills=True, losses=True)
_KILLS = Scenario("one message and kills", (None,), kills=True)
_REDRIVE = Scenario("a redrive", (None,), Limits(1, 3), redrives=1, operator=True)
_HIDES = Scenario("a newer host", (None,), Limits(1, 3), losses=True, hides=2)
_FIFO = Scenario("a group", ("a", "a"), Limits(2, 4), sent_later=1)
_FIFO_REDRIVE = Scenario("a group and a redrive", ("a", "a"), Limits(1, 3), redrives=1)


class Mistake(NamedTuple):
    """A mistake, where to look for it, and the rule that catches it."""

    made: type[Storage] | type[Deliveries]
    scenario: Scenario
    rule: str

    def deliveries(self) -> Deliveries:
        """Return the deliveries with the mistake in them."""
        if issubclass(self.made, Deliveries):
            return self.made(self.scenario, Storage())
        return Deliveries(self.scenario, self.made())


MISTAKES = (
    Mistake(by_delivery.AcknowledgesBeforeRunning, _KILLS, "not lost"),
    Mistake(by_delivery.BuriesLetterFirst, _KILLS, "one place"),
    Mistake(by_delivery.BuriesMessageFirst, _KILLS, "not lost"),
    Mistake(by_delivery.HidesInsteadOfFailing, _KILLS, "not late"),
    Mistake(by_delivery.RunsTheLastReceive, _KILLS, "bounded"),
    Mistake(by_delivery.TakesReceivesForAttempts, _KILLS, "not early"),
    Mistake(by_delivery.GivesUpAnAttemptEarly, _KILLS, "not early"),
    Mistake(by_delivery.AttemptsOnceMore, _KILLS, "attempts"),
    Mistake(by_storage.CountsReceives, _KILLS, "attempts"),
    Mistake(by_storage.CountsLateFailures, _MISHAPS, "attempts"),
    Mistake(by_storage.CountsRepeatedFailures, _MISHAPS, "attempts"),
    Mistake(by_storage.CountsNothing, _KILLS, "attempts"),
    Mistake(by_storage.CountsHides, _HIDES, "not early"),
    Mistake(by_storage.TakesTheReceiveBack, _HIDES, "leases"),
    Mistake(by_storage.ForgetsWhoHolds, _MISHAPS, "leases"),
    Mistake(by_storage.ForgetsLeases, _KILLS, "alone"),
    Mistake(by_storage.KeepsLeasesAtStart, _KILLS, "leases"),
    Mistake(by_storage.ForgetsReceivesAtStart, _KILLS, "bounded"),
    Mistake(by_storage.RedrivesTheSameGeneration, _REDRIVE, "redrive"),
    Mistake(by_storage.RedriveKeepsTheAttempts, _REDRIVE, "redrive"),
    Mistake(by_storage.RedriveLeavesTheLetter, _REDRIVE, "one place"),
    Mistake(by_storage.RedrivesToTheHead, _FIFO_REDRIVE, "alone"),
    Mistake(by_storage.DiscardsNothing, _REDRIVE, "final"),
    Mistake(by_storage.PurgesWhatIsInFlight, _REDRIVE, "leases"),
    Mistake(by_storage.GoesOnBehindAFailedHead, _FIFO, "order"),
    Mistake(by_storage.RetriesAtTheTail, _FIFO, "order"),
    Mistake(by_storage.SendsPastTheGroup, _FIFO, "alone"),
    Mistake(by_storage.NeverUnblocks, _FIFO, "live"),
    Mistake(by_storage.DeathDoesNotUnblock, _FIFO, "live"),
)
