"""The observer inside a job: it counts, times and traces the job's units of work, and changes nothing.

One thing changes the job between its units: a trial (``trial.py``), in a process that ``logparse try`` or ``tune`` has
started for it (``LOGPARSE_TRY``).  It takes everything back; its own table says when.

It runs in the job's own interpreter (Python 3.8 or newer, PyTorch 2.4 or newer), with no other module of logparse.

===================================================================  ==================================================
rule                                                                 what it protects from
===================================================================  ==================================================
The job's objects hold nothing of ours: no hook on a module, an      ``copy.deepcopy``, ``pickle``, ``torch.save`` and
optimizer or a graph.                                                TorchScript copy what an object holds
One wrapper of ``torch.nn.Module.__call__``, installed once and      Dynamo, ``torch.fx`` and the job compare and keep
never removed (``install.py``).                                      this function
The wrapper returns to the original at once while Dynamo compiles    compiled graphs, exported programs and traces
and within another call.                                             would hold our code
A call under a dispatch mode, a tracer or a functorch transform is   these see every operator and every size that is
not observed (``ordinary.py``).                                      read
The wrapper stands in the frame of PyTorch's own function            a frame more would show in stacks, and a deep model
(``module_frame.py``); where it cannot, it leaves tracebacks.        would exceed Python's recursion limit
Dynamo is off while our functions run beneath ``torch.compile``.     it would compile them, and count their graph breaks
Our functions raise nothing, and after a first error nothing is      an error of ours would end the job
observed any more (``guard.py``).
Optimizers and modules are told apart by weak references.            an object that the job has dropped must die
The profiler belongs to the job first: a window of ours ends before  PyTorch crashes when two profilers run at once
the job starts its own (``window.py``).
A window begins and ends in one thread, never within a backward      PyTorch crashes (SIGSEGV), and a CUDA call would
pass or a capture.                                                   break the capture
Ranges of ``record_function`` that outlive a window are cut off      PyTorch writes to freed memory when such a range
with it (``ranges.py``).                                             ends in a later window
Nothing is printed: what there is to say is written as a note.       the job's standard error is its own
Code that runs in the job has a module that can be imported.         Dynamo imports modules by their names
The import hook acts when torch is executed.                         ``importlib.util.find_spec("torch")`` looks it up
                                                                     without importing it
===================================================================  ==================================================

docs/measurement.md lists what a job can still see of us.
"""
