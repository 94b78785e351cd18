"""Streaming pictures through a detector."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from PIL import Image
from torch import Tensor

from lucid_yolo.data.image import UndecodableImageError, read_image
from lucid_yolo.data.loader import EVAL_CAPACITY, default_num_workers
from lucid_yolo.data.sources import resize_image
from lucid_yolo.decode.one_to_one import MAX_DETECTIONS
from lucid_yolo.geometry.letterbox import Letterbox, letterbox
from lucid_yolo.predict.results import Boxes, Results
from lucid_yolo.predict.sources import list_images
from lucid_yolo.runtime.detector import ImageDetector
from lucid_yolo.structures import Batch

Channels = Literal["bgr", "rgb"]
Picture = str | Path | bytes | np.ndarray | Image.Image | Tensor
Source = Picture | Iterable[Picture]

BRANCH = "one_to_one"
MAX_DECODE_THREADS = 8


@dataclass(frozen=True)
class _Prepared:
    """A picture decoded and resized, and how it lies on the network's canvas."""

    name: str
    image_rgb: np.ndarray
    resized: np.ndarray
    box: Letterbox
    duration_ms: float


class Predictor:
    """Finds objects in pictures with the deployed branch. Holds no state between calls, so threads may share it.

    Args:
        detector: The detector; it must run the one-to-one branch.
        conf: Least confidence of a detection, [0, 1].
        batch_size: Most pictures per batch, at least 1.
        max_det: Most detections per picture, [1, 300].

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self, detector: ImageDetector, conf: float = 0.25, batch_size: int = 16, max_det: int = MAX_DETECTIONS
    ) -> None:
        if not 0 <= conf <= 1:
            raise ValueError(f"conf: expected a confidence in [0, 1], found {conf}")
        if batch_size < 1:
            raise ValueError(f"batch_size: expected at least 1, found {batch_size}")
        if not 1 <= max_det <= MAX_DETECTIONS:
            raise ValueError(f"max_det: expected 1 to {MAX_DETECTIONS}, found {max_det}")
        if BRANCH not in detector.branches:
            raise ValueError(f"detector: expected one that runs {BRANCH}, found {detector.branches}")
        self.detector = detector
        self.conf = conf
        self.batch_size = batch_size
        self.max_det = max_det
        self._names = dict(enumerate(detector.meta.class_map.names))

    def predict(self, source: Source, channels: Channels = "bgr") -> Iterator[Results]:
        """Return the results picture by picture, in the order of the source, with only a few pictures in memory.

        All batches of a call have one shape, that of the first; the last one is filled with blanks.

        Args:
            source: File, folder or pattern; picture from memory: the bytes of a file, a PIL image, a uint8 array
                ``[H, W, 3]`` or ``[H, W]``, or an RGB tensor ``[3, H, W]`` in [0, 1]; or any iterable of these.
                A list is checked now, another iterable as it is read.
            channels: Order of the channels of arrays.

        Raises:
            FileNotFoundError: A source is not there, or holds no picture.
            ValueError: A picture has another shape or type; :class:`UndecodableImageError` from the iterator for one
                that cannot be decoded, naming the file.
        """
        if channels not in get_args(Channels):
            raise ValueError(f"channels: expected one of {', '.join(get_args(Channels))}, found {channels!r}")
        return self._stream(_expand(source), channels)

    def _stream(self, pictures: Iterable[Path | Picture], channels: Channels) -> Iterator[Results]:
        prepared = self._prepare_ahead(pictures, channels)
        num_slots = None
        while chunk := list(islice(prepared, num_slots or self.batch_size)):
            num_slots = num_slots or len(chunk)
            yield from self._run_batch(chunk, num_slots)

    def _prepare_ahead(self, pictures: Iterable[Path | Picture], channels: Channels) -> Iterator[_Prepared]:
        """Decode files in threads, at most one batch ahead; memory is read at once, for its owner may reuse it."""
        pool = ThreadPoolExecutor(min(MAX_DECODE_THREADS, default_num_workers()))
        pending: deque[Future[_Prepared]] = deque()
        try:
            for index, picture in enumerate(pictures):
                future = pool.submit(self._prepare, picture, f"image_{index}", channels)
                if not isinstance(picture, Path):
                    wait([future])
                pending.append(future)
                if len(pending) > self.batch_size:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _prepare(self, picture: Path | Picture, name: str, channels: Channels) -> _Prepared:
        start = time.perf_counter()
        image, name = _decode(picture, name, channels)
        height, width = image.shape[:2]
        box = letterbox(height, width, self.detector.meta.image_size_px)
        resized = resize_image(image, box.height_px, box.width_px)
        return _Prepared(name, image, resized, box, _ms_since(start))

    def _run_batch(self, chunk: Sequence[_Prepared], num_slots: int) -> Iterator[Results]:
        start = time.perf_counter()
        images = self._assemble(chunk, num_slots)
        assemble_ms = _ms_since(start) / len(chunk)
        start = time.perf_counter()
        found = self.detector.detect(images)[BRANCH]
        rows = zip(*(x[:, : self.max_det].cpu() for x in (found.boxes_xyxy_px, found.score, found.label)), strict=True)
        inference_ms = _ms_since(start) / len(chunk)
        for prepared, (boxes, score, label) in zip(chunk, rows, strict=False):
            start = time.perf_counter()
            objects = self._objects(boxes, score, label, prepared.box)
            speed = {
                "preprocess": prepared.duration_ms + assemble_ms,
                "inference": inference_ms,
                "postprocess": _ms_since(start),
            }
            shape = (prepared.box.height_src, prepared.box.width_src)
            yield Results(prepared.name, shape, self._names, objects, prepared.image_rgb, speed)

    def _assemble(self, chunk: Sequence[_Prepared], num_slots: int) -> UInt8[Tensor, "B 3 H W"]:
        size = self.detector.meta.image_size_px
        images = Batch.allocate(num_slots, (size, size), EVAL_CAPACITY).images
        for canvas, prepared in zip(images.permute(0, 2, 3, 1), chunk, strict=False):
            top, left, box = prepared.box.top_px, prepared.box.left_px, prepared.box
            canvas[top : top + box.height_px, left : left + box.width_px] = torch.from_numpy(prepared.resized)
        return images

    def _objects(
        self, boxes_xyxy_px: Float[Tensor, "D 4"], score: Float[Tensor, " D"], label: Int[Tensor, " D"], box: Letterbox
    ) -> Boxes:
        """Return one picture's detections in source pixels."""
        kept = (score >= self.conf) & (score > 0)
        boxes_src = box.boxes_to_src(boxes_xyxy_px[kept].double())
        return Boxes.clipped(boxes_src, score[kept], label[kept], (box.height_src, box.width_src))


def _expand(source: Source) -> Iterable[Path | Picture]:
    """Return files as paths and pictures from memory as they are."""
    if isinstance(source, str | Path):
        return list_images(source)
    if isinstance(source, bytes | np.ndarray | Image.Image | Tensor):
        return [source]
    if isinstance(source, list | tuple):
        if not source:
            raise ValueError("source: expected at least one picture, found an empty list")
        return [picture for entry in source for picture in _expand(entry)]
    if isinstance(source, Iterable):
        return chain.from_iterable(map(_expand, source))
    raise TypeError(f"source: expected a file, a picture or an iterable of these, found {type(source).__name__}")


def _decode(picture: Path | Picture, name: str, channels: Channels) -> tuple[np.ndarray, str]:
    """Return RGB pixels of a picture's own, and its name."""
    if isinstance(picture, np.ndarray):
        return _from_array(picture, name, channels), name
    if isinstance(picture, Tensor):
        return _from_tensor(picture, name), name
    if isinstance(picture, str | Path):
        return read_image(picture), str(picture)
    try:
        return read_image(picture), str(getattr(picture, "filename", "") or name)
    except UndecodableImageError as error:
        raise UndecodableImageError(f"{name}: {error}") from error


def _from_array(array: np.ndarray, name: str, channels: Channels) -> np.ndarray:
    is_color = array.ndim == 3 and array.shape[2] == 3
    if array.dtype != np.uint8 or not array.size or not (is_color or array.ndim == 2):
        raise ValueError(
            f"{name}: expected a uint8 array [H, W, 3] or [H, W], found {array.dtype} {array.shape}; "
            "give a batch as a list of arrays"
        )
    if not is_color:
        return np.repeat(array[:, :, None], 3, axis=2)
    return (array[:, :, ::-1] if channels == "bgr" else array).copy()


def _from_tensor(tensor: Tensor, name: str) -> np.ndarray:
    is_good = tensor.ndim == 3 and tensor.shape[0] == 3 and tensor.is_floating_point() and tensor.numel() > 0
    if not (is_good and bool(((tensor >= 0) & (tensor <= 1)).all())):
        raise ValueError(
            f"{name}: expected a floating-point RGB tensor [3, H, W] in [0, 1], found {tensor.dtype} "
            f"{list(tensor.shape)}; give a batch as a list of tensors"
        )
    pixels: np.ndarray = tensor.detach().float().mul(255).round().byte().permute(1, 2, 0).contiguous().cpu().numpy()
    return pixels


def _ms_since(start: float) -> float:
    return 1000 * (time.perf_counter() - start)
