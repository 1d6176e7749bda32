"""Readers of traces of rocprof and rocprofv3."""
