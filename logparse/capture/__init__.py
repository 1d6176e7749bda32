"""Run a job with its libraries' logs switched on.

``plan`` decides the settings, and ``run`` applies them. ``job`` runs the command. ``machine`` collects the machine's
facts.
"""
