"""Arrays in `.safetensors` files: trees by dotted names, read lazily, written whole or not at all.

A thin facade over `files.py`; `header.py` has the format, `names.py` how trees become names. The
third-party package of the same name is another thing: `import safetensors` still imports that.
"""

from __future__ import annotations

from pyeffect_torch.safetensors.files import Archive, load, load_archive, save

__all__ = ["Archive", "load", "load_archive", "save"]
