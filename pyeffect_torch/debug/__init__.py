"""Looking at programs while they run: where time goes.

`docs/debugging.md` shows each of these at work.
"""

from __future__ import annotations

from pyeffect_torch.debug.profiles import Profile, profile

__all__ = ["Profile", "profile"]
