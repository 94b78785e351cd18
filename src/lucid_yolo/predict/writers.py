"""Results written to a folder: drawn pictures and videos, label rows, crops, COCO JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from lucid_yolo.predict.results import Results, to_coco
from lucid_yolo.predict.sources import VideoSource
from lucid_yolo.predict.video import VideoWriter, video_fps
from lucid_yolo.runtime.json_file import to_json
from lucid_yolo.structures import ClassMap


def unique_stems(paths: Sequence[Path]) -> list[str]:
    """Return one file stem per picture, numbered from the second of its kind, also where case does not count."""
    taken: set[str] = set()
    numbers: Counter[str] = Counter()
    stems = []
    for path in paths:
        stem = path.stem
        while stem.casefold() in taken:
            numbers[path.stem] += 1
            stem = f"{path.stem}_{numbers[path.stem] + 1}"
        taken.add(stem.casefold())
        stems.append(stem)
    return stems


class PredictionsWriter:
    """Writes detections as they come: a COCO detection list that every COCO tool reads, whole also after an error.

    Each row has COCO's ``image_id``, ``category_id``, ``bbox`` and ``score``, and, for readers, ``category_name`` and
    ``file_name`` (the source), for a frame of a video its number, and for a tracked object its ``track_id``.

    Args:
        path: File to write; missing folders are made.
        class_map: Classes whose ids are written; the names are the detector's.
    """

    def __init__(self, path: Path, class_map: ClassMap) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._class_map = class_map
        self._names = dict(zip(class_map.source_ids, class_map.names, strict=True))
        self._file = path.open("w", encoding="utf-8")
        self._separator = "[\n"

    def __enter__(self) -> PredictionsWriter:
        return self

    def add(self, image_id: int | str, result: Results) -> None:
        """Write the detections of one picture."""
        rows = to_coco([replace(result, image_id=image_id)], self._class_map)
        for row, found in zip(rows, result.summary(), strict=True):
            extra: dict[str, Any] = {"category_name": self._names[row["category_id"]], "file_name": result.path}
            if result.frame_index is not None:
                extra["frame_index"] = result.frame_index
            if "track_id" in found:
                extra["track_id"] = found["track_id"]
            self._file.write(self._separator + to_json(row | extra, is_compact=True))
            self._separator = ",\n"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.write(("[" if self._separator == "[\n" else "\n") + "]\n")
        self._file.close()


@dataclass(frozen=True)
class Outputs:
    """What :class:`ResultsFolder` writes.

    Attributes:
        has_drawings: Drawn pictures, ``<picture>.jpg``.
        has_videos: Drawn videos, ``<video>.mp4``.
        has_json: ``predictions.json``.
        has_texts: ``labels/<picture>.txt``, a file per frame of a video.
        has_crops: ``crops/<class>/<picture>_<n>.png``.
        vid_stride: Every how many frames of a video there is a result; sets the frame rate.
    """

    has_drawings: bool = True
    has_videos: bool = True
    has_json: bool = True
    has_texts: bool = False
    has_crops: bool = False
    vid_stride: int = 1


class ResultsFolder:
    """Writes results as they come; what has been written is whole also after an error.

    Args:
        folder: Where to write; missing folders are made.
        sources: What was predicted, in order; it names the files.
        class_map: Classes whose ids are written to JSON.
        outputs: What to write.
        image_ids: Id of each source in JSON; None takes the stem of its file.
    """

    def __init__(
        self,
        folder: Path,
        sources: Sequence[Path | VideoSource],
        class_map: ClassMap,
        outputs: Outputs,
        image_ids: Sequence[int | str] | None = None,
    ) -> None:
        self.folder, self.outputs = folder, outputs
        self._class_map = class_map
        stems = unique_stems([_path(source) for source in sources])
        self._waiting = iter(list(zip(sources, stems, image_ids or stems, strict=True)))
        self._stem = ""
        self._image_id: int | str = ""
        self._last: tuple[str, int | None] = ("", None)
        self._open_files = ExitStack()
        self._predictions: PredictionsWriter | None = None
        self._video: VideoWriter | None = None

    def __enter__(self) -> ResultsFolder:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.outputs.has_json:
            writer = PredictionsWriter(self.folder / "predictions.json", self._class_map)
            self._predictions = self._open_files.enter_context(writer)
        return self

    def add(self, result: Results) -> None:
        """Write everything about one picture or frame."""
        self._advance(result)
        frame = result.frame_index
        stem = self._stem if frame is None else f"{self._stem}_{frame:06d}"
        if self._predictions is not None:
            self._predictions.add(self._image_id if frame is None else stem, result)
        if frame is None and self.outputs.has_drawings:
            result.save(self.folder / f"{stem}.jpg")
        elif self._video is not None:
            self._video.write(result.plot())
        if self.outputs.has_texts:
            result.save_txt(self.folder / "labels" / f"{stem}.txt")
        if self.outputs.has_crops:
            result.save_crop(self.folder / "crops", stem)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_video()
        self._open_files.close()

    def _advance(self, result: Results) -> None:
        """Go on to the source that the result comes from; sources that gave no result are passed over."""
        path, frame = self._last
        is_next_frame = result.path == path and frame is not None and (result.frame_index or 0) > frame
        self._last = (result.path, result.frame_index)
        if is_next_frame:
            return
        self._end_video()
        found = next((entry for entry in self._waiting if _name(entry[0]) == result.path), None)
        if found is None:
            raise ValueError(f"result: expected one of the sources that are left, in their order, found {result.path}")
        source, self._stem, self._image_id = found
        if isinstance(source, VideoSource) and self.outputs.has_videos:
            fps = video_fps(source) / self.outputs.vid_stride
            self._video = VideoWriter(self.folder / f"{self._stem}.mp4", fps)

    def _end_video(self) -> None:
        if self._video is not None:
            self._video.close()
            self._video = None


def _name(source: Path | VideoSource) -> str:
    return source.name if isinstance(source, VideoSource) else str(source)


def _path(source: Path | VideoSource) -> Path:
    """Return a path whose stem names the source's files."""
    if isinstance(source, Path):
        return source
    if isinstance(source.location, Path):
        return source.location
    address = source.name.partition("://")[2].partition("?")[0].rstrip("/") or source.name
    return Path(address.rpartition("/")[2].replace(":", "_"))
