"""cuDNN's plans for the gradients of convolutions, built in a thread while other things are made ready.

The first call of a convolution of each shape has cuDNN plan it, and compile it where it is depthwise: some seconds of
the first backward pass, in which the device does nothing. PyTorch keeps plans by thread, and the backward pass runs in
a thread of its own, the same for the whole process. So any thread can have them built there, ahead of time, with
tensors whose values do not matter. Plans depend on shapes, not on when they are built: no byte of a result changes.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Any

import torch
from torch import Tensor, nn

from lucid_yolo.graphs.runner import recording_stream
from lucid_yolo.models.blocks import ConvNormAct
from lucid_yolo.models.scales import STRIDES

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GradientCall:
    """What PyTorch asks for in the backward pass of one convolution, but for the values.

    Attributes:
        input_shape: (B, C, H, W) of the input.
        output_shape: (B, D, h, w) of the output.
        weight_shape: (D, C / groups, k, k).
        stride: Step along each side.
        padding: Pixels added at each side.
        groups: Groups of channels.
        is_first: The input is the image, which has no gradient.
    """

    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    groups: int
    is_first: bool

    def run(self, dtype: torch.dtype, device: torch.device) -> None:
        """Call it with channels-last tensors of unknown values."""
        shapes = self.output_shape, self.input_shape, self.weight_shape
        tensors = [
            torch.empty(shape, dtype=dtype, device=device, memory_format=torch.channels_last) for shape in shapes
        ]
        window = self.stride, self.padding, (1, 1), False, (0, 0), self.groups
        torch.ops.aten.convolution_backward(*tensors, None, *window, (not self.is_first, True, False))


def gradient_calls(network: nn.Module, batch_size: int, image_size_px: int) -> list[GradientCall]:
    """Return the distinct calls of a training step, depthwise ones first: these take longest.

    Args:
        network: On the CPU; takes images ``[B, 3, H, W]``; stays as it is.
        batch_size: Images of a batch.
        image_size_px: Side of the square input, a multiple of the largest stride.
    """
    probe = copy.deepcopy(network).eval()
    calls = list[GradientCall]()
    small_px = 2 * STRIDES[-1]

    def note(conv: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(conv, nn.Conv2d)
        assert not isinstance(conv.padding, str)

        def full(tensor: Tensor) -> tuple[int, ...]:
            _, channels, height, width = tensor.shape
            return batch_size, channels, height * image_size_px // small_px, width * image_size_px // small_px

        weight = tuple(conv.weight.shape)
        window = tuple(conv.stride), tuple(conv.padding), conv.groups
        calls.append(GradientCall(full(inputs[0]), full(output), weight, *window, is_first=not calls))

    for module in probe.modules():
        if isinstance(module, ConvNormAct):
            module.conv.register_forward_hook(note)
    with torch.no_grad():
        probe(torch.zeros(1, 3, small_px, small_px))
    return sorted(dict.fromkeys(calls), key=lambda call: call.groups == 1)


class GradientPlans:
    """Has the plans of a training step's gradients built, from now on.

    Args:
        network: On its device.
        batch_size: Images of a batch.
        image_size_px: Side of the square input.
        dtype: Of the convolutions.
    """

    def __init__(self, network: nn.Module, batch_size: int, image_size_px: int, dtype: torch.dtype) -> None:
        self._device = next(network.parameters()).device
        self._dtype = dtype
        probe = copy.deepcopy(network).cpu()  # before anybody changes it
        self._thread = Thread(target=self._build, args=(probe, batch_size, image_size_px), name="gradient-plans")
        self._thread.start()

    def wait(self) -> None:
        """Return when they are built."""
        self._thread.join()

    def _build(self, network: nn.Module, batch_size: int, image_size_px: int) -> None:
        try:
            run_in_backward_pass(gradient_calls(network, batch_size, image_size_px), self._dtype, self._device)
        except RuntimeError as error:  # they are then built where they are first needed, which says what is wrong
            _log.info("plans of gradients could not be built ahead: %s", str(error).partition("\n")[0])


def run_in_backward_pass(calls: Sequence[GradientCall], dtype: torch.dtype, device: torch.device) -> None:
    """Run calls in the thread in which PyTorch runs the backward passes of ``device``; done when the device is."""
    if device.type != "cuda":
        _run_backward(calls, dtype, device)
        return
    # Memory on the stream of the recordings is used again by the first of them.
    with torch.cuda.device(device), torch.cuda.stream(recording_stream(device)):
        _run_backward(calls, dtype, device)
        torch.cuda.current_stream().synchronize()


def _run_backward(calls: Sequence[GradientCall], dtype: torch.dtype, device: torch.device) -> None:
    anchor = torch.zeros((), device=device, requires_grad=True)
    for call in reversed(calls):  # a backward pass begins at the end
        anchor = _InBackwardPass.apply(anchor, call, dtype)
    anchor.backward()  # type: ignore[no-untyped-call]


class _InBackwardPass(torch.autograd.Function):
    """The identity, whose backward pass runs a call."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, call: GradientCall, dtype: torch.dtype) -> Tensor:
        ctx.call, ctx.dtype = call, dtype
        return anchor.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        ctx.call.run(ctx.dtype, grads[0].device)
        return grads[0], None, None
