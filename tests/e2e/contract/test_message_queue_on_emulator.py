"""The contract of tests/contract/test_message_queue_contract.py on the emulator."""

from tests.contract.test_message_queue_contract import *  # noqa: F403 - the same tests, on other adapters
