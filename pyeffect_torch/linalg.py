"""Linear algebra, as `et.linalg`: factorisations, solutions and norms of stacks of matrices.

Matrices lie in the last two axes; the axes before them are a stack. All functions take float32 and
float64, and can be differentiated and batched in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyeffect_torch.core import elsewhere
from pyeffect_torch.ops.cholesky import cholesky
from pyeffect_torch.ops.contraction import matmul, tensordot
from pyeffect_torch.ops.eigh import EighResult, eigh, eigvalsh
from pyeffect_torch.ops.lu import SlogdetResult, det, inv, slogdet, solve
from pyeffect_torch.ops.matrix_functions import (
    LstsqResult,
    lstsq,
    matrix_power,
    matrix_rank,
    norm,
)
from pyeffect_torch.ops.products import vecdot
from pyeffect_torch.ops.qr import QRResult, qr
from pyeffect_torch.ops.shape import matrix_transpose
from pyeffect_torch.ops.svd import SVDResult, pinv, svd, svdvals
from pyeffect_torch.ops.triangular import triangular_solve

if not TYPE_CHECKING:  # a type checker would take every name for one that exists
    __getattr__ = elsewhere.getter(__name__)

__all__ = [
    "EighResult",
    "LstsqResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "det",
    "eigh",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "triangular_solve",
    "vecdot",
]
