"""Contract tests that the emulator cannot carry as they are, by name, each with the reason why it is skipped there."""

from __future__ import annotations

from collections.abc import Mapping

_HIDDEN = "moves the clock on which SQS hides messages; moto follows it, and only real time moves this one"
_REMOVED = "compares when an item was removed, which the stream of the table tells in real time"
_FIRST = "compares when a message was sent, which SQS tells in real time"

NEEDS_THE_CLOCK: Mapping[str, str] = {
    "test_a_received_message_is_nobody_elses_until_its_lease_ends": _HIDDEN,
    "test_a_failed_message_waits_for_its_back_off": _HIDDEN,
    "test_only_failures_count_as_attempts": _HIDDEN,
    "test_a_group_keeps_its_order_under_every_outcome": _HIDDEN,
    "test_one_at_a_time_means_the_whole_queue_waits_for_a_back_off": _HIDDEN,
    "test_a_delayed_message_waits": _HIDDEN,
    "test_a_purge_takes_delayed_messages_and_those_whose_lease_has_ended": _HIDDEN,
    "test_every_write_is_one_change_even_if_nothing_changed": _REMOVED,
    "test_an_item_is_created_updated_and_deleted": _REMOVED,
    "test_a_letter_tells_what_died_when_and_why": _FIRST,
    "test_a_message_may_die_again_and_again": _FIRST,
}
