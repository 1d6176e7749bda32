"""Code inside a user's job that counts, times and traces its steps without changing the job.

A step, also called a unit of work, is for example a training step or a request. Only a trial (``trial.py``) changes the
job, between its steps. A trial runs only in a process that ``logparse try`` or ``tune`` has started for it
(``LOGPARSE_TRY``). The trial takes back every change; the table in ``trial.py`` tells when.

The code runs in the job's own Python (3.8 or newer, PyTorch 2.4 or newer). It imports no other module of logparse.

===================================================================  ==================================================
rule                                                                 reason
===================================================================  ==================================================
The job's objects hold nothing of ours: no hook on a module, an      ``copy.deepcopy``, ``pickle``, ``torch.save`` and
optimizer or a graph.                                                TorchScript copy what an object holds.
One wrapper of ``torch.nn.Module.__call__``, installed once and      Dynamo, ``torch.fx`` and the job compare and keep
never removed (``install.py``).                                      this function.
The wrapper returns to the original at once while Dynamo compiles,   Compiled graphs and traces would hold our code.
and within another call.
PyTorch is imported before the wrapper is installed.  ``torch.fx``   Exported programs would hold our code.
then keeps the original, and ``torch.export`` calls it.
A call under a dispatch mode, ``torch.jit.trace`` or a functorch     These see every operator and every size that is
transform is not observed (``ordinary.py``).                         read.
The wrapper stands in the frame of PyTorch's own function            One more frame would show in stacks, and a deep
(``module_frame.py``).  If it cannot, its frame is taken out of       model would exceed Python's recursion limit.
tracebacks.
Functions that PyTorch or the job calls are hidden from Dynamo       Dynamo would compile our functions, and count their
(``dynamo.hide``). Dynamo is off while they run beneath              graph breaks.
``torch.compile``.
An optimizer's step beneath ``torch.compile`` is not observed.       The profiler would print a warning if a window
                                                                     ended within a compiled region.
Our functions raise nothing.  After a first error nothing is         An error of ours would end the job.
observed any more (``guard.py``).
Optimizers and modules are told apart by weak references.            An object that the job has dropped must be freed.
Functions of Python that a job may replace, such as the clock and    A job that replaces them (a test with mocks) would
``open``, are kept as they were (``unpatched.py``).                  count our calls, and give us wrong results.
The profiler belongs to the job first.  A window of ours ends        PyTorch crashes if two profilers run at once.
before the job starts its own (``profiler.py``).
A window begins and ends in one thread, never within a backward      PyTorch crashes (SIGSEGV), and a CUDA call would
pass or a capture.                                                   break the capture.
Ranges of ``record_function`` that outlive a window are cut off      PyTorch writes to freed memory if such a range
with it (``ranges.py``).                                             ends in a later window.
Nothing is printed.  Remarks are written as notes.                   The job's standard error belongs to the job.
Code that runs in the job has a module that can be imported.         Dynamo imports modules by their names.
The import hook acts when torch is executed.                         ``importlib.util.find_spec("torch")`` looks it up
                                                                     without importing it.
===================================================================  ==================================================

docs/measurement.md lists what a job can still notice of this code.
"""
