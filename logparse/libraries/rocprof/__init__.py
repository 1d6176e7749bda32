"""Traces of rocprof and rocprofv3."""
