"""Methods: one paper, one file. A method owns its step, its optimisers and its batches."""

from vicinal.methods.method import Method
from vicinal.methods.plain import Plain

__all__ = ["Method", "Plain"]
