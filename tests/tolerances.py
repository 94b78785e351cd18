"""How close a result must be to its oracle, by the dtype it was computed in."""

import torch

TOLERANCES: dict[torch.dtype, dict[str, float]] = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-11},
    torch.float32: {"rtol": 1e-5, "atol": 1e-6},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
}
FLOAT32 = TOLERANCES[torch.float32]
FLOAT64 = TOLERANCES[torch.float64]
