"""Watch what a computation asks of the dispatcher, and refuse what would stop a recording or wait for the device."""

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FORBIDDEN = frozenset(
    {
        "_local_scalar_dense",
        "equal",
        "is_nonzero",
        "nonzero",
        "nonzero_static",
        "argwhere",
        "masked_select",
        "masked_scatter",
        "_unique2",
        "unique_dim",
        "unique_consecutive",
        "repeat_interleave",
        "bincount",
        "index",
        "index_put",
        "index_put_",
        "_index_put_impl_",
    }
)
COPIES = frozenset({"_to_copy", "copy_", "to"})


class NotStaticError(RuntimeError):
    """An operation synchronises with the host, has a data-dependent shape or crosses devices."""


class StaticGuard(TorchDispatchMode):
    """Raise on every operation that does not belong into a static step; count the others."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        self.seen[name] += 1
        if name in FORBIDDEN:
            raise NotStaticError(f"{func} inside the step")
        if name in COPIES:
            devices = {leaf.device for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
            devices |= {torch.device(kwargs["device"])} if kwargs.get("device") is not None else set()
            if len(devices) > 1:
                raise NotStaticError(f"{func} between {devices}")
        return func(*args, **kwargs)
