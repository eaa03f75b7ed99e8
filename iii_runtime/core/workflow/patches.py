"""Changes of a workflow's code while runs of it are open: which branch a run takes, once and for ever."""

from __future__ import annotations

from collections.abc import Iterable

from iii_runtime.core.payload import check_name
from iii_runtime.core.workflow.commands import RecordPatch
from iii_runtime.core.workflow.loop import WorkflowLoop
from iii_runtime.core.workflow.outbox import Outbox


class Patches:
    """The changes a run has met.

    Attributes:
        is_replaying: Whether what runs now has run before.
    """

    def __init__(self, loop: WorkflowLoop, outbox: Outbox) -> None:
        self.is_replaying = False
        self._loop = loop
        self._outbox = outbox
        self._recorded: set[str] = set()
        self._answers: dict[str, bool] = {}

    def know(self, patch_ids: Iterable[str]) -> None:
        """Note which changes the journal has."""
        self._recorded.update(patch_ids)

    def is_taken(self, patch_id: str) -> bool:
        """Return whether the run takes the new branch; the answer never changes within a run."""
        answer = self._answers.get(patch_id)
        if answer is None:
            self._loop.check("ctx.patched")
            check_name(patch_id, "the id of a patch")
            answer = patch_id in self._recorded or not self.is_replaying
            if not self._loop.is_dying:
                self._answers[patch_id] = answer
                if answer and patch_id not in self._recorded:
                    self._outbox.add(lambda: RecordPatch(patch_id=patch_id))
        return answer
