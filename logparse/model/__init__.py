"""Data classes that file formats produce and analyzers use.  These modules import nothing else of logparse.

=============  =================================================================================
``problems``   what a library is asked to compute
``texts``      reads the canonical texts of problems back
``records``    what files state about problems, and what analyzers conclude
``gains``      times now and after a change
``remedies``   what a person does about a finding
``grammar``    what the text fields may hold
``ranges``     which numbers are possible
``faults``     why a problem or solution cannot be stored
=============  =================================================================================
"""

from __future__ import annotations

from logparse.model.faults import describe_value, problem_fault, solution_fault
from logparse.model.gains import Gain
from logparse.model.grammar import fault
from logparse.model.problems import (
    COMPLEX,
    CONV_FIELDS,
    CONV_LAYOUT,
    GEMM_FIELDS,
    GEMM_LAYOUT,
    NARROW,
    TYPE_BYTES,
    Argument,
    Beta,
    ConvProblem,
    Direction,
    GemmProblem,
    Kind,
    Member,
    Operand,
    OperatorProblem,
    Problem,
    Trans,
    with_plain,
)
from logparse.model.ranges import LIMIT, MOST_CALLS, MOST_US, is_moment, is_time, is_whole
from logparse.model.records import (
    DEFAULT,
    FACTS,
    TRIED,
    Call,
    Collective,
    Evidence,
    Fact,
    Finding,
    Kernel,
    Measurement,
    Message,
    Override,
    Record,
    Reject,
    Solution,
    SolutionName,
    Status,
    fast_replace,
    solution_from_text,
)
from logparse.model.remedies import (
    AFTER_SEARCH,
    SURENESS,
    UPPER_BOUND,
    Advise,
    ChangeProgram,
    Remedy,
    Replay,
    Search,
    Setting,
    Sureness,
    UseRows,
)
from logparse.model.texts import kind_of, layer_of, problem_from_text

__all__ = [
    "AFTER_SEARCH",
    "COMPLEX",
    "CONV_FIELDS",
    "CONV_LAYOUT",
    "DEFAULT",
    "FACTS",
    "GEMM_FIELDS",
    "GEMM_LAYOUT",
    "LIMIT",
    "MOST_CALLS",
    "MOST_US",
    "NARROW",
    "SURENESS",
    "TRIED",
    "TYPE_BYTES",
    "UPPER_BOUND",
    "Advise",
    "Argument",
    "Beta",
    "Call",
    "ChangeProgram",
    "Collective",
    "ConvProblem",
    "Direction",
    "Evidence",
    "Fact",
    "Finding",
    "Gain",
    "GemmProblem",
    "Kernel",
    "Kind",
    "Measurement",
    "Member",
    "Message",
    "Operand",
    "OperatorProblem",
    "Override",
    "Problem",
    "Record",
    "Reject",
    "Remedy",
    "Replay",
    "Search",
    "Setting",
    "Solution",
    "SolutionName",
    "Status",
    "Sureness",
    "Trans",
    "UseRows",
    "describe_value",
    "fast_replace",
    "fault",
    "is_moment",
    "is_time",
    "is_whole",
    "kind_of",
    "layer_of",
    "problem_fault",
    "problem_from_text",
    "solution_fault",
    "solution_from_text",
    "with_plain",
]
