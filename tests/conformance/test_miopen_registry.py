"""Test that logparse's list of MIOpen's solvers (numbers, names and algorithms) is the same as the real library's."""

from __future__ import annotations

from logparse.libraries.miopen.solvers import ID_OF_CODE, SOLVERS, is_registered, known_algorithm
from tests.conformance.rocm import Rocm

CONVOLUTION = 1
"""The number by which MIOpen marks a solver for convolutions (``miopen::solver::Primitive::Convolution``)."""


def test_every_solver_of_the_library_has_its_number_and_algorithm(rocm: Rocm) -> None:
    with rocm.driver("miopen_registry", {}) as driver:
        found = [(number, name, code) for number, name, primitive, code in driver.ask(400) if primitive == CONVOLUTION]
    assert len(found) > 80
    assert {number: name for number, name, _ in found} == {number: SOLVERS.get(number) for number, *_ in found}
    assert {name: known_algorithm(name) for _, name, _ in found} == {name: ID_OF_CODE[code] for _, name, code in found}
    assert all(is_registered(name) for _, name, _ in found)
