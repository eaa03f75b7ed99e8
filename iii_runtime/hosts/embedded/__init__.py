"""The embedded host: one process, one SQLite file, HTTP, WebSocket, cron and queues."""
