"""Where engine and adapters are put together and the outside world is translated."""
