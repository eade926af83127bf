"""The error tree. Every message says what, where (the user's own line) and how to mend it.

A class is also the builtin a NumPy user would catch. The public name of this module is
`pyeffect_torch.errors`.
"""

from __future__ import annotations

from pyeffect_torch.core import source


class EffectTorchError(Exception):
    """The root of the tree.

    Args:
        what: what is wrong, with the types of the operands.
        mend: one imperative sentence.
        where: a captured source location; by default the innermost frame outside the package.
    """

    def __init__(self, what: str, mend: str = "", where: source.Source | str | None = None) -> None:
        self.what = what
        self.mend = mend
        self.where = source.describe(where if where is not None else source.capture_user())
        lines = [what]
        if self.where:
            lines.append(f"  at {self.where}")
        if mend:
            lines.append(f"  {mend}")
        super().__init__("\n".join(lines))


class ShapeError(EffectTorchError, ValueError):
    """Shapes or axes that do not fit an operation."""


class DTypeError(EffectTorchError, TypeError):
    """Dtypes that do not fit an operation, or are mixed; also `grad` of an integer."""


class TraceError(EffectTorchError, TypeError):
    """A placeholder read or leaked, or a rule used in a mode that it does not have."""


class TreeError(EffectTorchError, ValueError):
    """Trees that do not match; the message prints both."""


class ArgumentError(EffectTorchError, TypeError):
    """Wrong argnums, unhashable static arguments, a non-scalar loss, a doubly donated array."""


class NativeLibraryError(EffectTorchError, ImportError):
    """The native library is missing, or does not match this package."""


class ModelError(EffectTorchError, ValueError):
    """A model that cannot be built or applied."""


class CheckpointError(EffectTorchError, ValueError):
    """A checkpoint that does not fit what it is loaded into."""


class SamplerError(EffectTorchError, ValueError):
    """A data sampler with impossible settings or state."""


class TokenizerError(EffectTorchError, ValueError):
    """A tokenizer that cannot be built, or text that it cannot take."""


class FileFormatError(EffectTorchError, ValueError):
    """A malformed file; the message names the offset or key."""


class BackendError(EffectTorchError):
    """A runtime refused or failed.

    Attributes:
        reason: the kind of failure, one word for each class. phase: what was under way ("build",
            "compile", "execute", ...).
        backend, operation: the runtime's and the op's name, or "".
    """

    reason: str = "execution"

    def __init__(
        self,
        what: str,
        mend: str = "",
        where: source.Source | str | None = None,
        *,
        backend: str = "",
        operation: str = "",
        phase: str = "execute",
        details: str = "",
    ) -> None:
        super().__init__(what, mend, where)
        self.backend = backend
        self.operation = operation
        self.phase = phase
        self.details = details


class InvalidHandleError(BackendError):
    """An array used after it was deleted or donated."""

    reason = "invalid-handle"


class ForeignHandleError(BackendError):
    """Arrays of two runtimes meet in one operation."""

    reason = "foreign-handle"


class UnsupportedError(BackendError):
    """A dtype or op that a runtime does not have."""

    reason = "unsupported"


class CompileError(BackendError):
    """The core refused a program."""

    reason = "compile"


class ExecutionError(BackendError):
    """A program failed while it ran."""

    reason = "execution"


class IndexOutOfBoundsError(ExecutionError, IndexError):
    """An index outside its axis; names op, index, axis and extent."""

    reason = "index-out-of-bounds"


class CancelledError(BackendError):
    """A computation was cancelled by its scope."""

    reason = "cancelled"


class IoError(BackendError, OSError):
    """A file could not be read or written."""

    reason = "io"
