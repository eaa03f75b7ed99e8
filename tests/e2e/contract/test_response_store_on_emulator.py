"""The contract of tests/contract/test_response_store_contract.py on the emulator."""

from tests.contract.test_response_store_contract import *  # noqa: F403 - the same tests, on other adapters
