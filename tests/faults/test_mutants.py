"""Defects that are put into the code on purpose still fit it, and one is noticed; scripts/mutants tries them all."""

from __future__ import annotations

import pytest
from faults.mutants import BY_NAME, Change, DoesNotFit, Mutant, mutated, try_out


@pytest.mark.parametrize("name", BY_NAME)
def test_a_defect_fits(name: str) -> None:
    """The code that it takes away is there."""
    with mutated(BY_NAME[name]) as sources:
        assert (sources / "dibs" / "app.py").exists()


def test_a_defect_without_a_place_is_told() -> None:
    """Nothing is tried that changes nothing."""
    nowhere = Mutant("nowhere", "takes nothing away", (Change("app.py", "no such text"),), ())
    with pytest.raises(DoesNotFit, match="app.py has nothing like"), mutated(nowhere):
        pass


def test_the_fence_is_missed() -> None:
    """Without it its tests fail, and with it they pass."""
    (result,) = try_out(BY_NAME["fence"], ["sqlite"], times=1, say=lambda line: None)
    assert (result.control, result.caught) == (True, 1), result.evidence
