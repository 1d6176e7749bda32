"""Run a job with its libraries' logs switched on.

``plan`` decides the settings, ``run`` carries them out: ``job`` runs the command, ``machine`` asks what the machine is.
"""
