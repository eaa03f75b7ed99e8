"""Small Protocols in domain words. Adapters implement them; the engine and the hosts are written against them.

Every Protocol is asynchronous. An adapter over a blocking library may return from its coroutines without suspending.
"""
