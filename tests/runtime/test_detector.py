import pytest
import torch

from lucid_yolo.runtime.detector import choose_device


def test_the_processor_is_always_there() -> None:
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["toaster", "cuda:99", ""])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected auto, cpu or a GPU of this machine") as caught:
        choose_device(name)
    assert "\n" not in str(caught.value)
