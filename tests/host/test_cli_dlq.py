"""`dlq` without a host."""

from __future__ import annotations

import pytest

from tests.host.commands import answer, done, refused

pytestmark = pytest.mark.usefixtures("own_folder")


class TestDeadLetters:
    def test_they_are_listed_oldest_first_a_page_at_a_time(self, dead: tuple[str, ...]) -> None:
        assert [letter["id"] for letter in answer("dlq", "list")] == list(dead)
        assert [letter["id"] for letter in answer("dlq", "list", "default", "--limit", "1", "--offset", "1")] == [
            dead[1]
        ]
        printed = done("dlq", "list")
        assert all(receipt in printed for receipt in dead)
        assert "NonRetryableError: no stock for {'number': 0}" in printed

    def test_one_is_shown_with_its_attempts_their_stacks_and_the_payload(self, dead: tuple[str, ...]) -> None:
        printed = done("dlq", "show", dead[0])
        for text in (dead[0], "shop::fail", "attempt 1: ", "raise NonRetryableError", '"number": 0', "never redriven"):
            assert text in printed
        assert answer("dlq", "show", dead[0])["payload"] == {"number": 0}

    def test_one_or_all_are_redriven(self, dead: tuple[str, ...]) -> None:
        assert answer("dlq", "redrive", "default", dead[1])["redriven"] == 1
        assert done("dlq", "redrive", "default", "--all") == "2 redriven\n"
        assert answer("dlq", "list") == []
        assert answer("queues")[0]["visible"] == 3

    def test_one_is_discarded_without_asking(self, dead: tuple[str, ...]) -> None:
        assert done("dlq", "discard", "default", dead[0]) == "1 discarded\n"
        assert [letter["id"] for letter in answer("dlq", "list")] == list(dead[1:])

    def test_all_are_discarded_only_after_a_yes(self, dead: tuple[str, ...]) -> None:
        assert "--yes" in refused(2, "dlq", "discard", "default", "--all")
        assert len(answer("dlq", "list")) == len(dead)
        assert answer("dlq", "discard", "default", "--all", "--yes")["discarded"] == 3

    @pytest.mark.usefixtures("dead")
    def test_a_receipt_that_is_no_dead_letter_is_exit_code_1(self) -> None:
        for command in (("show",), ("redrive", "default"), ("discard", "default")):
            assert "error: dead_letter_not_found: " in refused(1, "dlq", *command, "nothing")

    @pytest.mark.usefixtures("shop")
    def test_one_or_all_has_to_be_said(self) -> None:
        assert "--all" in refused(2, "dlq", "redrive", "default")
        assert "--all" in refused(2, "dlq", "redrive", "default", "receipt", "--all")
