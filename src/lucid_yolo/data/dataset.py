"""Open one split of a data set: images, boxes, classes, and the account of every label row."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lucid_yolo.data.account import RowAccount
from lucid_yolo.data.readers.coco import find_coco_json, read_coco, read_coco_classes
from lucid_yolo.data.readers.layout import DataConfig, Split, load_config
from lucid_yolo.data.readers.yolo import read_yolo
from lucid_yolo.structures import ClassMap, ImageRecord

SourceFormat = Literal["auto", "yolo", "coco"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataSplit:
    """One split, read.

    Attributes:
        records: Images and boxes, sorted by path.
        class_map: Classes of the whole data set.
        account: What became of every label row.
        source_format: ``"yolo"`` or ``"coco"``.
        root: Folder that the data set's paths start from.
    """

    records: tuple[ImageRecord, ...]
    class_map: ClassMap
    account: RowAccount
    source_format: str
    root: Path


def open_split(data_root: str | Path, split: Split, source_format: SourceFormat = "auto") -> DataSplit:
    """Read one split of a data set.

    Args:
        data_root: A folder, or a data YAML.
        split: ``"train"``, ``"val"`` or ``"test"``; ``valid`` folders count as ``val``.
        source_format: Format of the labels; ``"auto"`` looks.

    Returns:
        The records, sorted by path. Unusable rows and images are in the account, never an error here; call
        ``account.check()`` before training.

    Raises:
        FileNotFoundError: ``data_root`` does not exist.
        ValueError: The split or the class names cannot be found.
    """
    config = load_config(data_root)
    found_format = _detect_format(config) if source_format == "auto" else source_format
    class_map = _read_classes(config, found_format)
    if found_format == "coco":
        path = find_coco_json(config, split)
        if path is None:
            raise ValueError(f"split {split!r}: expected a COCO JSON for it under {config.root}, found none")
        records, account = read_coco(config, split, path, class_map)
    else:
        records, account = read_yolo(config, split, class_map)
    _log.info("%s: split %s read as %s, %d images", config.root, split, found_format, len(records))
    return DataSplit(records, class_map, account, found_format, config.root)


def read_class_map(data_root: str | Path, source_format: SourceFormat = "auto") -> ClassMap:
    """Read the classes of a data set without reading its labels.

    Args:
        data_root: A folder, or a data YAML.
        source_format: Format of the labels; ``"auto"`` looks.

    Raises:
        FileNotFoundError: ``data_root`` does not exist.
        ValueError: No class names are given anywhere.
    """
    config = load_config(data_root)
    return _read_classes(config, _detect_format(config) if source_format == "auto" else source_format)


def _detect_format(config: DataConfig) -> Literal["yolo", "coco"]:
    """COCO when the YAML names a JSON, or there is no YAML but a COCO JSON; YOLO otherwise."""
    names_json = any(entry.suffix.lower() == ".json" for entries in config.entries.values() for entry in entries)
    if names_json or (config.yaml_path is None and _any_coco_json(config) is not None):
        return "coco"
    return "yolo"


def _any_coco_json(config: DataConfig) -> Path | None:
    """Return the JSON that names the classes: the training split's, else another's."""
    splits: tuple[Split, ...] = ("train", "val", "test")
    return next((path for split in splits if (path := find_coco_json(config, split)) is not None), None)


def _read_classes(config: DataConfig, source_format: str) -> ClassMap:
    if source_format == "coco":
        path = _any_coco_json(config)
        if path is None:
            raise ValueError(f"data_root: expected a COCO JSON under {config.root}, found none")
        return read_coco_classes(path)
    if config.class_map is None:
        where = config.yaml_path or f"{config.root} (neither a data.yaml, a classes.txt nor a COCO JSON)"
        raise ValueError(f"class names: expected `names` (a list, or a map from id to name), found none in {where}")
    return config.class_map
