"""Start counting and timing the job's steps.

This file runs in the job after torch was imported, because the variable ``LOGPARSE_WITH_TORCH`` names it.
"""

from logparse_in_job.install import install  # type: ignore[import-not-found]  # on the job's path

install()
