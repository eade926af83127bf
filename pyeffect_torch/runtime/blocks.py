"""The nested programs of an encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyeffect_torch.core import source

if TYPE_CHECKING:
    from pyeffect_torch.runtime.encoder import Encoder


class Blocks:
    """The nested programs of an encoding: equal ones are one, with the lines of the first."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.sources: list[tuple[source.Source | None, ...]] = []
        self.operations: list[tuple[str, ...]] = []

    def add(self, blob: bytes, encoder: Encoder) -> int:
        """Return the number of a nested program."""
        number = self.numbers.setdefault(blob, len(self.numbers))
        if number == len(self.sources):
            self.sources.append(tuple(encoder.sources))
            self.operations.append(tuple(encoder.operations))
        return number
