"""Observe the job's units of work. This file runs once the job has executed torch (``LOGPARSE_WITH_TORCH``)."""

from logparse_in_job.install import install  # type: ignore[import-not-found]  # on the job's path

install()
