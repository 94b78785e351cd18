"""Streaming pictures through a detector."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import chain, count, groupby, islice
from pathlib import Path
from typing import Any, Literal, get_args

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
from lucid_yolo.models.head import DEPLOYED
from lucid_yolo.predict.boxes import Boxes
from lucid_yolo.predict.results import Results
from lucid_yolo.predict.sources import VideoSource, list_sources
from lucid_yolo.predict.track import LOW_CONF, Tracker, join, make_tracker
from lucid_yolo.predict.video import Frame, read_frames
from lucid_yolo.runtime.detector import ImageDetector
from lucid_yolo.structures import Batch

Channels = Literal["bgr", "rgb"]
OnError = Literal["raise", "skip"]
Picture = str | Path | int | VideoSource | bytes | np.ndarray | Image.Image | Tensor
Source = Picture | Iterable[Picture]
Item = Path | VideoSource | bytes | np.ndarray | Image.Image | Tensor
Loaded = Path | Frame | UndecodableImageError | bytes | np.ndarray | Image.Image | Tensor

MAX_DECODE_THREADS = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Prepared:
    """A picture decoded and resized, and how it lies on the network's canvas."""

    name: str
    image_rgb: np.ndarray
    resized: np.ndarray
    box: Letterbox
    duration_ms: float
    frame: Frame | None


@dataclass(frozen=True)
class _Call:
    """What one call of :meth:`Predictor.predict` asks for."""

    conf: float
    max_det: int
    labels: Tensor | None
    channels: Channels
    vid_stride: int
    on_error: OnError

    def __post_init__(self) -> None:
        _check_limits(self.conf, self.max_det)
        for name, value, known in (("channels", self.channels, Channels), ("on_error", self.on_error, OnError)):
            if value not in get_args(known):
                raise ValueError(f"{name}: expected one of {', '.join(get_args(known))}, found {value!r}")
        if self.vid_stride < 1:
            raise ValueError(f"vid_stride: expected at least 1, found {self.vid_stride}")


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
        _check_limits(conf, max_det)
        if batch_size < 1:
            raise ValueError(f"batch_size: expected at least 1, found {batch_size}")
        if DEPLOYED not in detector.branches:
            raise ValueError(f"detector: expected one that runs {DEPLOYED}, found {detector.branches}")
        self.detector = detector
        self.conf = conf
        self.batch_size = batch_size
        self.max_det = max_det
        self._names = dict(enumerate(detector.meta.class_map.names))

    @property
    def names(self) -> dict[int, str]:
        """Class index to name."""
        return dict(self._names)

    def __call__(self, source: Source, channels: Channels = "bgr", **options: Any) -> list[Results]:
        """Return the results of :meth:`predict` as a list; for a few pictures, for it keeps them all in memory.

        Args:
            source: As of :meth:`predict`, with an end.
            channels: As of :meth:`predict`.
            **options: As of :meth:`predict`.
        """
        return list(self.predict(source, channels, **options))

    def predict(
        self,
        source: Source,
        channels: Channels = "bgr",
        *,
        conf: float | None = None,
        max_det: int | None = None,
        classes: Sequence[int | str] | None = None,
        vid_stride: int = 1,
        on_error: OnError = "raise",
    ) -> Iterator[Results]:
        """Return the results picture by picture, in the order of the source, with only a few pictures in memory.

        All batches of a call have one shape, that of the first; the last one is filled with blanks. A camera or a
        stream is run frame by frame as they come, what stands before and after it in batches of their own. Pictures
        from memory do not tell whether they come from a camera: they wait until a batch is full, with ``batch_size=1``
        of the predictor not at all.

        Args:
            source: File, folder, pattern, ``.txt`` list or video; number of a camera or address of a stream; picture
                from memory: the bytes of a file, a PIL image, a uint8 array ``[H, W, 3]`` or ``[H, W]``, or an RGB
                tensor ``[3, H, W]`` in [0, 1]; or any iterable of these. A list is checked now, another iterable as
                it is read.
            channels: Order of the channels of arrays.
            conf: Least confidence, for this call.
            max_det: Most detections per picture, for this call.
            classes: Indices or names of the classes to find; None for all.
            vid_stride: Take every n-th frame of videos.
            on_error: ``skip`` leaves out what cannot be decoded, with a warning; ``raise`` stops there.

        Raises:
            FileNotFoundError: A source is not there, or holds no picture.
            ValueError: An argument is out of range; a picture has another shape or type; from the iterator
                :class:`UndecodableImageError` for one that cannot be decoded, naming the file.
        """
        call = _Call(
            conf=self.conf if conf is None else conf,
            max_det=self.max_det if max_det is None else max_det,
            labels=None if classes is None else self._labels(classes),
            channels=channels,
            vid_stride=vid_stride,
            on_error=on_error,
        )
        return self._stream(_expand(source), call)

    def track(
        self,
        source: Source,
        tracker: str | Tracker = "bytetrack",
        channels: Channels = "bgr",
        *,
        conf: float | None = None,
        max_det: int | None = None,
        classes: Sequence[int | str] | None = None,
        vid_stride: int = 1,
        on_error: OnError = "raise",
    ) -> Iterator[Results]:
        """Follow objects through videos, cameras or pictures that are the frames of one; ``boxes.id`` has their ids.

        Ids count from 1 and begin anew with every call and every video. A result holds the objects whose track is
        confirmed, from its second frame on. Needs the extra ``track``.

        Args:
            source: As of :meth:`predict`.
            tracker: ``bytetrack``, ``ocsort``, ``botsort`` (makes up for a moving camera) or ``sort``, or a tracker of
                the library ``trackers``, which is reset first.
            channels: As of :meth:`predict`.
            conf: Least confidence that begins a track; weaker detections, down to 0.1, may continue one.
            max_det: As of :meth:`predict`.
            classes: As of :meth:`predict`.
            vid_stride: As of :meth:`predict`.
            on_error: As of :meth:`predict`.

        Raises:
            ImportError: The extra is not installed.
            ValueError: An unknown tracker; and as of :meth:`predict`.
        """
        conf = self.conf if conf is None else conf
        _check_limits(conf, self.max_det)
        chosen = make_tracker(tracker, conf) if isinstance(tracker, str) else tracker
        results = self.predict(
            source,
            channels,
            conf=min(conf, LOW_CONF),
            max_det=max_det,
            classes=classes,
            vid_stride=vid_stride,
            on_error=on_error,
        )
        return join(results, chosen)

    def _labels(self, classes: Sequence[int | str]) -> Tensor:
        """Return class indices."""
        numbers = {name: index for index, name in self._names.items()}
        wanted = [numbers.get(entry, -1) if isinstance(entry, str) else int(entry) for entry in classes]
        unknown = [entry for entry, index in zip(classes, wanted, strict=True) if index not in self._names]
        if unknown or isinstance(classes, str):
            raise ValueError(f"classes: expected indices or names among {self._names}, found {unknown or classes!r}")
        return torch.tensor(wanted, dtype=torch.int64)

    def _stream(self, items: Iterable[Item], call: _Call) -> Iterator[Results]:
        numbers = count()
        for is_live, part in groupby(items, _is_live):
            yield from self._run_part(zip(_frames(part, call.vid_stride), numbers, strict=False), is_live, call)

    def _run_part(self, pictures: Iterable[tuple[Loaded, int]], is_live: bool, call: _Call) -> Iterator[Results]:
        """Run numbered pictures in batches of one shape, with the next ones prepared ahead; live ones one by one."""
        batch_size, num_ahead = (1, 0) if is_live else (self.batch_size, self.batch_size)
        prepared = self._prepare_ahead(pictures, num_ahead, call)
        num_slots = None
        while chunk := list(islice(prepared, num_slots or batch_size)):
            num_slots = num_slots or len(chunk)
            yield from self._run_batch(chunk, num_slots, call)

    def _prepare_ahead(
        self, pictures: Iterable[tuple[Loaded, int]], num_ahead: int, call: _Call
    ) -> Iterator[_Prepared]:
        """Decode files in threads, some ahead; memory is read and given at once, for its owner may reuse it."""
        pool = ThreadPoolExecutor(min(MAX_DECODE_THREADS, default_num_workers()))
        pending: deque[Future[_Prepared | None]] = deque()
        try:
            for picture, number in pictures:
                future = pool.submit(self._prepare, picture, f"image_{number}", call)
                is_in_memory = not isinstance(picture, Path | Frame)
                if is_in_memory:
                    wait([future])
                pending.append(future)
                while len(pending) > (0 if is_in_memory else num_ahead):
                    if done := pending.popleft().result():
                        yield done
            while pending:
                if done := pending.popleft().result():
                    yield done
        finally:
            pool.shutdown(cancel_futures=True)

    def _prepare(self, picture: Loaded, name: str, call: _Call) -> _Prepared | None:
        """Return a picture ready for the network; None for one that cannot be decoded and is to be left out."""
        start = time.perf_counter()
        try:
            image, name = _decode(picture, name, call.channels)
        except UndecodableImageError as error:
            if call.on_error == "raise":
                raise
            _log.warning("left out: %s", error)
            return None
        height, width = image.shape[:2]
        box = letterbox(height, width, self.detector.meta.image_size_px)
        resized = resize_image(image, box.height_px, box.width_px)
        frame = picture if isinstance(picture, Frame) else None
        return _Prepared(name, image, resized, box, _ms_since(start), frame)

    def _run_batch(self, chunk: Sequence[_Prepared], num_slots: int, call: _Call) -> Iterator[Results]:
        start = time.perf_counter()
        images = self._assemble(chunk, num_slots)
        assemble_ms = _ms_since(start) / len(chunk)
        start = time.perf_counter()
        found = self.detector.detect(images)[DEPLOYED]
        rows = zip(*(x.cpu() for x in (found.boxes_xyxy_px, found.score, found.label)), strict=True)
        inference_ms = _ms_since(start) / len(chunk)
        for prepared, (boxes, score, label) in zip(chunk, rows, strict=False):
            start = time.perf_counter()
            objects = _objects(boxes, score, label, prepared.box, call)
            speed = {
                "preprocess": prepared.duration_ms + assemble_ms,
                "inference": inference_ms,
                "postprocess": _ms_since(start),
            }
            yield Results(
                prepared.name,
                objects.orig_shape,
                self._names,
                objects,
                prepared.image_rgb,
                speed,
                source_ids=self.detector.meta.class_map.source_ids,
                frame_index=None if prepared.frame is None else prepared.frame.index,
                timestamp_s=None if prepared.frame is None else prepared.frame.timestamp_s,
            )

    def _assemble(self, chunk: Sequence[_Prepared], num_slots: int) -> UInt8[Tensor, "B 3 H W"]:
        size = self.detector.meta.image_size_px
        images = Batch.allocate(num_slots, (size, size), EVAL_CAPACITY).images
        for canvas, prepared in zip(images.permute(0, 2, 3, 1), chunk, strict=False):
            top, left, box = prepared.box.top_px, prepared.box.left_px, prepared.box
            canvas[top : top + box.height_px, left : left + box.width_px] = torch.from_numpy(prepared.resized)
        return images


def _check_limits(conf: float, max_det: int) -> None:
    if not 0 <= conf <= 1:
        raise ValueError(f"conf: expected a confidence in [0, 1], found {conf}")
    if not 1 <= max_det <= MAX_DETECTIONS:
        raise ValueError(f"max_det: expected 1 to {MAX_DETECTIONS}, found {max_det}")


def _objects(
    boxes_xyxy_px: Float[Tensor, "D 4"],
    score: Float[Tensor, " D"],
    label: Int[Tensor, " D"],
    box: Letterbox,
    call: _Call,
) -> Boxes:
    """Return one picture's detections in source pixels."""
    is_kept = (score >= call.conf) & (score > 0)
    if call.labels is not None:
        is_kept &= torch.isin(label, call.labels)
    kept = is_kept.nonzero().flatten()[: call.max_det]
    boxes_src = box.boxes_to_src(boxes_xyxy_px[kept].double())
    return Boxes.clipped(boxes_src, score[kept], label[kept], (box.height_src, box.width_src))


def _expand(source: Source) -> Iterable[Item]:
    """Return files as paths, videos unopened, and pictures from memory as they are."""
    if isinstance(source, str | Path | int):
        return list_sources(source)
    if isinstance(source, VideoSource | bytes | np.ndarray | Image.Image | Tensor):
        return [source]
    if isinstance(source, list | tuple):
        if not source:
            raise ValueError("source: expected at least one picture, found an empty list")
        return [item for entry in source for item in _expand(entry)]
    if isinstance(source, Iterable):
        return chain.from_iterable(map(_expand, source))
    raise TypeError(f"source: expected a file, a picture or an iterable of these, found {type(source).__name__}")


def _is_live(item: Item) -> bool:
    return isinstance(item, VideoSource) and item.is_live


def _frames(items: Iterable[Item], vid_stride: int) -> Iterator[Loaded]:
    """Yield the frames of videos, everything else as it is; an error takes the place of the frame that is missing."""
    for item in items:
        if not isinstance(item, VideoSource):
            yield item
            continue
        try:
            yield from read_frames(item, vid_stride)
        except UndecodableImageError as error:
            yield error


def _decode(picture: Loaded, name: str, channels: Channels) -> tuple[np.ndarray, str]:
    """Return RGB pixels of a picture's own, and its name."""
    if isinstance(picture, Frame):
        return picture.image_rgb, picture.name
    if isinstance(picture, np.ndarray):
        return _from_array(picture, name, channels), name
    if isinstance(picture, Tensor):
        return _from_tensor(picture, name), name
    if isinstance(picture, Path):
        return read_image(picture), str(picture)
    if isinstance(picture, UndecodableImageError):
        raise picture
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
