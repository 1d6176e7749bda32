"""Run a user's job with the logs of its GPU libraries switched on.

``plan`` decides which environment variables switch the logs on. ``job`` runs the command. ``machine`` finds out the GPU
and the library versions. ``run`` does all of this and reads the logs afterwards.
"""
