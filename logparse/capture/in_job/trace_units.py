"""Start counting and timing the job's steps. ``LOGPARSE_WITH_TORCH`` runs this file after torch is imported."""

from logparse_in_job.install import install  # type: ignore[import-not-found]  # on the job's path

install()
