"""torch.profiler's trace (Kineto JSON): operators with their inputs, and the GPU kernels that each operator launched.

::

    {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "numSms": 132 …}],
      "traceEvents": [
      {
        "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 394, "tid": 394,
        "ts": 4381042530804.283, "dur": 32.013,
        "args": {
          "External id": 126,"Concrete Inputs": ["", ""], "Input type": ["c10::BFloat16", "c10::BFloat16"],
          "Input Strides": [[768, 1], [1, 768]], "Input Dims": [[2048, 768], [768, 50257]], "Ev Idx": 2
        }
      },
      {
        "ph": "X", "cat": "kernel", "name": "nvjet_sm90_tst_…", "pid": 0, "tid": 7, "ts": …, "dur": 14.24,
        "args": {"External id": 126, "device": 0, "stream": 7, "correlation": 389, …}
      },

``torch.profiler.profile(record_shapes=True)`` and ``export_chrome_trace`` (or ``tensorboard_trace_handler``) write it.

A kernel belongs to the operator with the kernel's ``External id``.  This is the innermost operator that was open when
the kernel was launched.  If kernels have no id, the operator is found by the launch's time and thread.  Only operators
that launched kernels themselves are calls.  For example, under autocast the outer ``aten::addmm`` has float inputs, and
the inner ``aten::addmm`` ran.

One event is one unit:

=================================================  ====================================================
an operator of ``operators`` with kernels          call: a problem, or two for a backward (see below)
… that launched nothing itself                     foreign
… whose inputs are not recorded or not readable    message
a kernel                                           measurement: part of a ``Measurement`` and a ``Kernel``
a copy or fill of the device                       message: they are no kernels and are not timed
metadata, runtime, flow arrows, other operators    foreign
=================================================  ====================================================

Kernels of a ``convolution_backward`` are assigned to B and W by their names and order (``gradients``).  If B or W has
no kernel of its own, the operator is one call and one measurement of direction ``B+W``.

Facts:

* ``epilogue_kernels``: the elementwise operators that followed a product (``epilogues``).
* ``gelu_gradient_kernels``: the operators that compute the gradient of a GELU (``epilogues``).
* ``called_from``: the places in the program that called a problem, if the trace has stacks (``places``, ``stacks``).
* ``profiler_steps``: number of steps in the trace, if the job calls ``profiler.step()``.  The last step does not count
  if the program called ``step()`` after its last iteration (``events``).
* ``profiler_steps_us``: wall time of the steps together.
* ``optimizer_steps``: number of calls of an optimizer's ``step``, if no steps are marked.
* ``untraced_step_us``: wall time of one step without the profiler (from ``logparse capture --trace``).  This time is
  useful because recording slows the host.
* ``gpu_window_us``, ``gpu_busy_us`` and others: how much of the time the GPU worked (``busy``).

Times are microseconds of device time.  A sample is the time in which any kernel of one operator runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from logparse.libraries.kinds.format import FileFormat, Head, Origin, Outcome, Source
from logparse.libraries.kinds.patterns import regex


def recognise(head: Head) -> bool:
    """Tell whether a file is a trace of PyTorch's profiler, from its first bytes.

    The file must be JSON with the header of Kineto (the profiler's library), or with events that only this profiler
    writes.
    """
    start = head.data.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] == b"[":
        return b'"cpu_op"' in start
    if start[:1] != b"{":
        return False
    header = any(word in start for word in (b'"deviceProperties"', b'"traceName"', b'"baseTimeNanoseconds"'))
    return (header and b'"traceEvents"' in start) or (b'"ph"' in start and b'"cpu_op"' in start)


def why_empty(data: bytes) -> str:
    """Explain why a trace contains no operator call and no kernel.

    ``data`` is the beginning of the trace.  The reason is found from the categories of the trace's events: for example,
    only the CPU was traced.
    """
    found = {x.decode("utf-8", "replace") for x in _CATEGORY.findall(data)} - _OWN
    if not found:
        return (
            "the trace is empty, because torch.profiler clears its events when a cycle of its schedule ends; export "
            "the trace in `on_trace_ready`"
        )
    for of, what in _TRACES:
        if any(re.match(of, category) for category in found):
            return what
    return f"the trace's events have only the categories {', '.join(sorted(found)[:_SHOWN])}"


_CATEGORY, _SHOWN = regex(rb'"cat":\s*"([^"\\]{1,60})"'), 8
_OWN = {"Trace", "overhead", "Overhead"}
"""The categories of events about the profiler itself."""
_TRACES = (
    ("mtia", "the trace is of an MTIA device (Meta's accelerator), whose kernels logparse cannot read"),
    ("async_npu|HostToDevice", "the trace is of Ascend NPUs, whose kernels logparse cannot read"),
    (
        "cuda_profiler_range",
        "the trace has counters of CUPTI, but no times of kernels; trace the job without `profile_all_kernels`",
    ),
    (
        "Kernel$|Operator$",
        (
            "the trace has the form of 2021 (categories Kernel and Operator), which logparse cannot read; trace the "
            "job again with a newer PyTorch"
        ),
    ),
    (
        "cpu_op|python_function|user_annotation",
        "the trace has events of the CPU only; add `ProfilerActivity.CUDA` (also on AMD)",
    ),
)
"""Explanations of traces without kernels, each with a regular expression for an event category in such a trace.

The first match is taken.
"""


def read(source: Source) -> Iterator[Outcome]:
    """Read a trace file of PyTorch's profiler.  Yield the operator calls, the kernels and facts about the machine.

    The first results state how many events of the trace were read.
    """
    from logparse.libraries.torch_profiler.events import read_events  # loads slowly, and only traces need it

    return read_events(source)


FORMAT = FileFormat(
    name="torch-profiler",
    about=(
        "traces of torch.profiler (Kineto JSON): operators for GEMMs and convolutions, with the kernels that each "
        "launched"
    ),
    recognise=recognise,
    read=read,
    origins=(Origin("trace", evidence=False),),
    job_log=True,
    order="the file is one JSON object, whose events state times, threads and launches, so their order means nothing",
    seen="traces of PyTorch 2.11 on an H200; traces of 2025 from an MI300X; dozens of public traces (no test)",
    example='{"ph": "X", "cat": "cpu_op", "name": "aten::mm", …}',
    gives="calls, kernels, times",
    how=(
        "run the job under `torch.profiler.profile(record_shapes=True)`, and save the trace with its method "
        "`export_chrome_trace`"
    ),
)
