"""What `et.linalg` says of operands that it cannot take."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import pyeffect_torch as et
from pyeffect_torch import linalg
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError

SQUARE = (
    linalg.inv, linalg.det, linalg.slogdet, linalg.cholesky, linalg.eigh, linalg.eigvalsh,
)  # fmt: skip
ANY = (linalg.qr, linalg.svd, linalg.svdvals, linalg.pinv, linalg.matrix_rank)


def f64(*shape: int) -> Any:
    return et.zeros(shape, "float64")


@pytest.mark.parametrize("f", [*SQUARE, *ANY, linalg.lstsq, linalg.solve, linalg.triangular_solve])
@pytest.mark.parametrize("dtype", ["int64", "bool", "float16", "bfloat16"])
def test_other_dtypes(f: Callable[..., Any], dtype: str) -> None:
    x = et.zeros((3, 3), dtype)
    more = () if f in (*SQUARE, *ANY) else (x,)
    with pytest.raises(DTypeError, match=rf"{f.__name__}: needs float32 or float64, got {dtype}\["):
        f(x, *more)


@pytest.mark.parametrize("f", [*SQUARE, *ANY])
def test_rank(f: Callable[..., Any]) -> None:
    text = f"{f.__name__}: needs matrices in the last two axes, got float64[3]"
    with pytest.raises(ShapeError, match=re.escape(text)) as caught:
        f(f64(3))
    assert "rank 2 or more" in str(caught.value)
    assert "test_errors.py" in str(caught.value)


@pytest.mark.parametrize("f", SQUARE)
def test_square(f: Callable[..., Any]) -> None:
    text = f"{f.__name__}: needs square matrices, got float64[2, 3, 4]"
    with pytest.raises(ShapeError, match=re.escape(text)) as caught:
        f(f64(2, 3, 4))
    assert "as many rows as columns" in str(caught.value)


CASES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: linalg.solve(f64(3, 4), f64(3)), ShapeError,
     "solve: needs square matrices, got float64[3, 4]"),
    (lambda: linalg.solve(f64(3, 3), f64(4)), ShapeError,
     "solve: the right-hand sides float64[4] do not fit the matrices float64[3, 3]"),
    (lambda: linalg.solve(f64(3, 3), f64(2, 4, 1)), ShapeError,
     "give axis -2 of the right-hand sides the extent 3"),
    (lambda: linalg.solve(f64(2, 3, 3), f64(4, 3, 1)), ShapeError,
     "solve: shapes [2] and [4] do not broadcast"),
    (lambda: linalg.solve(f64(3, 3), et.zeros((3,))), DTypeError,
     "solve: mixed dtypes, float64[3, 3] and float32[3]"),
    (lambda: linalg.solve([[1.0]], f64(1)), ArgumentError,
     "solve: expected an array or a number, got list"),
    (lambda: linalg.triangular_solve(f64(3, 3), f64(3), left_side=False), ShapeError,
     "triangular_solve: the right-hand sides float64[3] do not fit the matrices float64[3, 3]"),
    (lambda: linalg.triangular_solve(f64(3, 3), f64(3, 2), left_side=False), ShapeError,
     "give axis -1 of the right-hand sides the extent 3"),
    (lambda: linalg.triangular_solve(f64(3, 3), et.zeros((3, 2))), DTypeError,
     "triangular_solve: mixed dtypes"),
    (lambda: linalg.lstsq(f64(3, 2), f64(2)), ShapeError,
     "lstsq: the right-hand sides float64[2] do not fit float64[3, 2]"),
    (lambda: linalg.lstsq(f64(5, 3, 2), f64(3, 2)), ShapeError, "the same leading axes"),
    (lambda: linalg.lstsq(f64(3, 2), et.zeros((3,))), DTypeError, "lstsq: mixed dtypes"),
    (lambda: linalg.lstsq(f64(3, 2), f64(3), rcond=-1.0), ArgumentError,
     "lstsq: the tolerance is -1.0"),
    (lambda: linalg.pinv(f64(3, 2), float("nan")), ArgumentError, "pinv: the tolerance is nan"),
    (lambda: linalg.matrix_rank(f64(3, 2), "big"), ArgumentError,
     "matrix_rank: the tolerance is 'big'"),
    (lambda: linalg.qr(f64(3, 2), "full"), ArgumentError, "qr: unknown mode 'full'"),
    (lambda: linalg.eigh(f64(3, 3), "l"), ArgumentError, "eigh: UPLO is 'l'"),
    (lambda: linalg.eigvalsh(f64(3, 3), "lower"), ArgumentError, "eigvalsh: UPLO is 'lower'"),
    (lambda: linalg.matrix_power(f64(3, 2), 2), ShapeError,
     "matrix_power: needs square matrices, got float64[3, 2]"),
    (lambda: linalg.matrix_power(f64(2, 2), 0.5), ArgumentError,
     "matrix_power: n must be an int, got float"),
    (lambda: linalg.matrix_power(et.ones((2, 2), "int64"), -1), DTypeError,
     "inv: needs float32 or float64, got int64[2, 2]"),
    (lambda: linalg.matrix_power(et.ones((2, 2), "bool"), 1), DTypeError, "matrix_power:"),
    (lambda: linalg.norm(et.ones((2, 2), "int64")), DTypeError,
     "norm: needs a floating array, got int64[2, 2]"),
    (lambda: linalg.norm(f64(2, 2), 3), ArgumentError, "norm: matrices have no norm of order 3"),
    (lambda: linalg.norm(f64(2, 2), True), ArgumentError, "matrices have no norm of order True"),
    (lambda: linalg.norm(f64(2), "fro"), ArgumentError, "vectors have no norm of order 'fro'"),
    (lambda: linalg.norm(f64(2), float("nan")), ArgumentError, "vectors have no norm of order nan"),
    (lambda: linalg.norm(f64(2, 2, 2), 2), ShapeError,
     "norm: ord=2 of float64[2, 2, 2], which is neither a vector nor a matrix"),
    (lambda: linalg.norm(f64(2, 2, 2), None, (0, 1, 2)), ShapeError,
     "norm: axes [0, 1, 2] are not two different ones"),
    (lambda: linalg.norm(f64(2, 2), 1, (0, -2)), ShapeError,
     "norm: axes [0, -2] are not two different ones"),
    (lambda: linalg.norm(f64(2, 2), 1, 2), ShapeError, "norm: axis 2 is out of range for rank 2"),
    (lambda: linalg.norm(f64(0, 2), float("inf")), ShapeError, "no elements to choose from"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), CASES, ids=[text for _, _, text in CASES])
def test_messages(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)) as caught:
        call()
    assert "test_errors.py" in str(caught.value), "the line of the caller is named"


def test_under_vmap_the_users_line_is_named() -> None:
    with pytest.raises(ShapeError, match="inv: needs square matrices") as caught:
        et.vmap(linalg.inv)(f64(5, 3, 2))
    assert "test_errors.py" in str(caught.value)
