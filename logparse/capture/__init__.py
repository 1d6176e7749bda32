"""Run a job with its libraries' logs switched on."""
