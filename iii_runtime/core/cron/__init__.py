"""Cron expressions with seconds and time zones, and the identities of jobs."""

from iii_runtime.core.cron.expression import CronError, CronFields
from iii_runtime.core.cron.job import CronJob, cron_payload, job_id
from iii_runtime.core.cron.schedule import CronSchedule

__all__ = ["CronError", "CronFields", "CronJob", "CronSchedule", "cron_payload", "job_id"]
