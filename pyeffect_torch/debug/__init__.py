"""Looking at programs while they run: where time goes, where a NaN comes from, what values are.

`docs/debugging.md` shows each of these at work.
"""

from __future__ import annotations

from pyeffect_torch.debug.nan_checks import nans
from pyeffect_torch.debug.prints import callback
from pyeffect_torch.debug.prints import print_ as print
from pyeffect_torch.debug.profiles import Profile, profile

__all__ = ["Profile", "callback", "nans", "print", "profile"]
