import pytest
import torch

from lucid_yolo.runtime.precision import forward_context, resolve_precision

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


@pytest.mark.parametrize(("name", "expected"), [("auto", "fp32"), ("fp32", "fp32"), ("bf16", "bf16")])
def test_names_on_a_cpu(name: str, expected: str) -> None:
    assert resolve_precision(name, CPU) == expected


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, "bf16"), (False, "fp32")])
def test_auto_on_a_gpu(monkeypatch: pytest.MonkeyPatch, has_bf16: bool, expected: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_args, **_kwargs: has_bf16)
    assert resolve_precision("auto", CUDA) == expected
    assert resolve_precision("fp16", CUDA) == "fp16"


def test_half_precision_needs_a_gpu() -> None:
    with pytest.raises(ValueError, match="fp16 needs a CUDA device, found cpu; use bf16 or fp32"):
        resolve_precision("fp16", CPU)


def test_context() -> None:
    x = torch.randn(4, 4)
    with forward_context("fp32", CPU):
        assert (x @ x).dtype == torch.float32
    with forward_context("bf16", CPU):
        assert (x @ x).dtype == torch.bfloat16
        assert not torch.is_autocast_cache_enabled()
