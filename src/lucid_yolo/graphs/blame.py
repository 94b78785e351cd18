"""Naming the module in which something went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class ModuleTrace:
    """Remembers which modules' forward passes are under way; the innermost is to blame for an error.

    Args:
        names: Module to its name, as users know it.
    """

    def __init__(self, names: Mapping[nn.Module, str]) -> None:
        self._names = names
        self._stack: list[nn.Module] = []
        self._handles: list[Any] = []

    @property
    def innermost(self) -> str:
        """Name and type of the innermost module whose forward has begun and not ended; empty if there is none."""
        for module in reversed(self._stack):
            if module in self._names:
                return f"{self._names[module] or 'the network'} ({type(module).__name__})"
        return ""

    def __enter__(self) -> ModuleTrace:
        self._handles = [
            register_module_forward_pre_hook(lambda module, _inputs: self._stack.append(module)),
            register_module_forward_hook(lambda *_: self._leave()),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        if kind is None:
            self._stack.clear()

    def _leave(self) -> None:
        self._stack.pop()
