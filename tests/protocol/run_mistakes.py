"""Mistakes an implementation could make. The search finds each of them, and says which rule it breaks."""

from __future__ import annotations

from typing import NamedTuple

from tests.protocol import run_move_mistakes as by_move
from tests.protocol import run_scenarios as scenarios
from tests.protocol import run_store_mistakes as by_store
from tests.protocol.run_clients import Runs
from tests.protocol.run_model import Store
from tests.protocol.run_rules import Scenario


class Mistake(NamedTuple):
    """A mistake, where to look for it, and the rule that catches it."""

    made: type[Store] | type[Runs]
    scenario: Scenario
    rule: str

    def runs(self) -> Runs:
        """Return the runs with the mistake in them."""
        if issubclass(self.made, Runs):
            return self.made(self.scenario, store_for(self.scenario))
        return Runs(self.scenario, self.made(self.scenario.limit, parent=self.scenario.parent))


def store_for(scenario: Scenario) -> Store:
    """Return the store of a scenario, without a mistake."""
    return Store(scenario.limit, parent=scenario.parent)


MISTAKES = (
    Mistake(by_store.FencesByNumberOnly, scenarios.TERMINATE, "obedient"),
    Mistake(by_move.AcknowledgesWithoutGuard, scenarios.QUEUE, "guarded"),
    Mistake(by_store.SuspendsOverTheInbox, scenarios.TWO_SIGNALS, "guarded"),
    Mistake(by_store.ClosesOverTheInbox, scenarios.QUEUE, "no signal lost"),
    Mistake(by_store.SuspendsWithoutEpoch, scenarios.QUEUE, "fenced"),
    Mistake(by_store.DeliversWithoutWake, scenarios.TWO_SIGNALS, "guarded"),
    Mistake(by_store.StartsWithoutWake, scenarios.CLIENT_START, "guarded"),
    Mistake(by_move.DrainsAtAcquire, scenarios.QUEUE, "no signal lost"),
    Mistake(by_move.ActsBeforeTheStore, scenarios.QUEUE, "stored first"),
    Mistake(by_store.AppendsWithoutNumber, scenarios.QUEUE, "fenced"),
    Mistake(by_move.ContinuesInTwoWrites, scenarios.CONTINUE_AS_NEW, "live"),
    Mistake(by_store.ContinuesWithoutWake, scenarios.CONTINUE_AS_NEW, "guarded"),
    Mistake(by_move.SweepsWakesAway, scenarios.QUEUE, "guarded"),
    Mistake(by_move.IgnoresTheArchive, scenarios.REUSE, "final"),
    Mistake(by_move.ReplacesWithoutWake, scenarios.REUSE, "guarded"),
    Mistake(by_store.LeavesDutiesWithoutWake, scenarios.PARENT, "guarded"),
    Mistake(by_move.SeesCancelsAtSuspensionOnly, scenarios.CANCEL, "obedient"),
    Mistake(by_move.PutsChunksUnconditionally, scenarios.CHUNKS, "append only"),
    Mistake(by_move.FeedsRepeatedItems, scenarios.REPEATED_SIGNAL, "once"),
    Mistake(by_move.ForgetsItemsOfEarlierRuns, scenarios.REPEATED_IN_CHAIN, "once"),
    Mistake(by_move.StartsThenSignals, scenarios.SIGNAL_WITH_START, "together"),
    Mistake(by_move.SignalsAClosedRun, scenarios.SIGNAL_WITH_START, "append only"),
    Mistake(by_move.EndsARunForALateStart, scenarios.TERMINATE_EXISTING, "obedient"),
    Mistake(by_store.TerminatesWhateverRuns, scenarios.TERMINATE_EXISTING, "obedient"),
    Mistake(by_store.ReplacesWhateverIsThere, scenarios.TWO_REPLACE, "final"),
    Mistake(by_move.IgnoresTheArchive, scenarios.TWO_REPLACE, "final"),
    Mistake(by_move.ReplacesARunWithDuties, scenarios.TERMINATE_WAITING, "live"),
    Mistake(by_move.NeverParks, scenarios.PARK, "bounded"),
    Mistake(by_store.ForgetsToCount, scenarios.PARK, "bounded"),
    Mistake(by_store.KeepsTheCountWhenParked, scenarios.PARK_AND_CANCEL, "bounded"),
    Mistake(by_store.ParksOverTheInbox, scenarios.PARK_AND_CANCEL, "guarded"),
    Mistake(by_store.ResumesWithoutWake, scenarios.PARK_AND_CANCEL, "guarded"),
    Mistake(by_store.SuspendsWithoutLease, scenarios.LOST_REPEATED, "no signal lost"),
)
