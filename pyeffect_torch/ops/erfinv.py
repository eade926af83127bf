"""The inverse of the error function on drawn numbers, from which normal numbers are made.

Reference: Giles, "Approximating the erfinv function", GPU Computing Gems Jade edition, 2011,
tables for single and double precision. A rational-free form: one polynomial in a transform of
`w = -log(1 - x**2)` for each interval of w, chosen by `where`.
"""

from __future__ import annotations

from typing import Any, Final

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, literal

_f: Any = late.functions

# Highest power first; the intervals of a dtype have equally many but for leading zeros.
_SINGLE_CENTRE: Final = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_SINGLE_TAIL: Final = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip
_DOUBLE_CENTRE: Final = (
    -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,
    1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17,
    6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14,
    2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
    1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08,
    4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05,
    0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533,
    0.24015818242558961693, 1.6536545626831027356,
)  # fmt: skip
_DOUBLE_TAIL: Final = (
    2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07,
    1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06,
    2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05,
    6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
    0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066,
    -0.0037512085075692412107, 0.005370914553590063617, 1.0052589676941592334,
    3.0838856104922207635,
)  # fmt: skip
_DOUBLE_FAR: Final = (
    -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
    -3.7894654401267369937e-09, 7.6157012080783393804e-09, -1.4960026627149240478e-08,
    2.9147953450901080826e-08, -6.7711997758452339498e-08, 2.2900482228026654717e-07,
    -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
    7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026,
    1.0103004648645343977, 4.8499064014085844221,
)  # fmt: skip


def erfinv(x: Array) -> Array:
    """Return the number whose error function is `x`, in (-1, 1); half types go through float32.

    Its derivative would be that of the polynomials, so `x` must be drawn, not differentiated.
    """
    computed = dtypes.accumulator(x.dtype)
    wide = _f.cast(x, computed)
    w = _f.negative(_f.log1p(_f.negative(_f.square(wide))))
    scale = _double(w) if computed is dtypes.float64 else _single(w)
    return _f.cast(_f.multiply(scale, wide), x.dtype)


def _single(w: Array) -> Array:
    near = _f.less(w, 5.0)
    t = _f.where(near, _f.subtract(w, 2.5), _f.subtract(_f.sqrt(w), 3.0))
    return _polynomial(t, [(near, _SINGLE_CENTRE)], _SINGLE_TAIL)


def _double(w: Array) -> Array:
    near, middle = _f.less(w, 6.25), _f.less(w, 16.0)
    root = _f.sqrt(w)
    outer = _f.subtract(root, _f.where(middle, _number(w, 3.25), _number(w, 5.0)))
    t = _f.where(near, _f.subtract(w, 3.125), outer)
    return _polynomial(t, [(near, _DOUBLE_CENTRE), (middle, _DOUBLE_TAIL)], _DOUBLE_FAR)


def _number(like: Array, value: float) -> Array:
    return literal(value, like.dtype)


def _polynomial(
    t: Array, cases: list[tuple[Array, tuple[float, ...]]], otherwise: tuple[float, ...]
) -> Array:
    """Horner's rule on the coefficients of the first case that holds."""
    length = max(len(otherwise), *(len(row) for _, row in cases))
    value: Array | None = None
    for power in range(length):
        coefficient = _coefficient(t, otherwise, power, length)
        for condition, row in reversed(cases):
            chosen = _coefficient(t, row, power, length)
            coefficient = _f.where(condition, chosen, coefficient)
        value = coefficient if value is None else _f.add(_f.multiply(value, t), coefficient)
    assert value is not None
    return value


def _coefficient(like: Array, row: tuple[float, ...], power: int, length: int) -> Array:
    missing = length - len(row)
    return _number(like, 0.0 if power < missing else row[power - missing])
