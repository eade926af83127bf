"""Looking at programs while they run: where time goes, where a NaN comes from.

`docs/debugging.md` shows each of these at work.
"""

from __future__ import annotations

from pyeffect_torch.debug.nan_checks import nans
from pyeffect_torch.debug.profiles import Profile, profile

__all__ = ["Profile", "nans", "profile"]
