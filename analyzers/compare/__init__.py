"""Compare two executions of a job (runs), and check what changes and override files gained."""
