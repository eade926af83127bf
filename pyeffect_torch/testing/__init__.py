"""Assertions for tests of numeric code: values, derivatives, and declarations of ops.

Tolerances are counted in roundings of the dtype, never chosen by trial.
"""

from __future__ import annotations

from pyeffect_torch.testing.declarations import declaration_problems
from pyeffect_torch.testing.gradients import check_grads
from pyeffect_torch.testing.values import assert_close

__all__ = ["assert_close", "check_grads", "declaration_problems"]
