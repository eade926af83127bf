"""The checks of values that a program makes at run time: codes of the opcode `check`, and texts."""

from __future__ import annotations

from typing import Final

NO_LABEL: Final = 1
NEW_NAN: Final = 2
NEW_INFINITY: Final = 3
NAN_INPUT: Final = 4

_AWAY: Final = "keep its operands away from where it has no value, by et.where or et.clip"

CHECKS: Final[dict[int, tuple[str, str]]] = {
    NO_LABEL: (
        "no label is active: all of them are ignore_index",
        "give at least one label that is not ignored",
    ),
    NEW_NAN: ("the result has a NaN, and no operand has one", _AWAY),
    NEW_INFINITY: ("the result is infinite somewhere, and no operand is", _AWAY),
    NAN_INPUT: ("it has a NaN already", "look at where the value comes from"),
}
"""By code: what is wrong, after the name of the op or value, and how to mend it."""


def check_texts(code: int) -> tuple[str, str]:
    """What is wrong, and how to mend it, for a failed check."""
    return CHECKS.get(code, (f"check {code} failed", "mend the input data"))
