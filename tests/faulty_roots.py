"""Small data sets with known faults."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIZES = ((64, 48), (33, 57), (101, 29))


def picture(seed: int, size: tuple[int, int] = (64, 48)) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 255, (6, 6, 3), np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def write_picture(path: Path, seed: int, size: tuple[int, int] = (64, 48), orientation: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture(seed, size).save(path, exif=exif)


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def jpeg_bytes(seed: int) -> bytes:
    buffer = io.BytesIO()
    picture(seed, (320, 240)).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def make_coco(root: Path) -> Path:
    """Two splits, odd sizes, integer and text ids, gaps in the category ids, a crowd, an annotated area, EXIF."""
    rng = np.random.default_rng(0)
    categories = [{"id": 90, "name": "犬"}, {"id": 3, "name": "traffic light"}]
    for split, ids in (("train", (7, "b 1", 139)), ("val", (7,))):
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for index, image_id in enumerate(ids):
            width, height = SIZES[index]
            name = f"deep/größe {index}.png" if index else f"{index}.png"
            write_picture(root / split / name, index + 10 * (split == "val"), (width, height), 6 if index == 1 else 1)
            if index == 1:
                width, height = height, width
            images.append({"id": image_id, "file_name": name, "width": width, "height": height})
            for number in range(3):
                x, y = rng.uniform(0, [width / 2, height / 2])
                w, h = rng.uniform(1, [width / 2, height / 2])
                row = {"id": len(annotations) + 1, "image_id": image_id, "category_id": (3, 90)[number % 2]}
                extra = {"area": 12.5, "iscrowd": int(number == 2)}
                annotations.append({**row, "bbox": [x, y, w, h], **extra})
        content = {"images": images, "annotations": annotations, "categories": categories}
        write_text(root / f"annotations/instances_{split}.json", json.dumps(content, ensure_ascii=False))
    return root


def make_faulty(root: Path) -> Path:
    """A YOLO root with every kind of fault."""
    write_text(root / "data.yaml", "train: images/train\nval: images/val\nnames: [cat, 犬, absent]\n")
    for index in range(4):
        write_picture(root / f"images/train/{index}.png", index)
        write_text(root / f"labels/train/{index}.txt", "0 0.5 0.5 0.4 0.4\n1 0.3 0.3 0.1 0.2\n")
    write_text(root / "labels/train/1.txt", "0 0.5 0.5 0.4 0.4\n" * 3 + "7 0.5 0.5 0.4 0.4\n0 0.01 0.5 0.1 0.1\n")
    write_picture(root / "images/train/unlabelled.png", 9)
    (root / "images/train/half.jpg").write_bytes(jpeg_bytes(20)[:3000])
    write_text(root / "labels/train/half.txt", "1 0.5 0.2 0.2 0.2\n")
    write_text(root / "images/train/page.jpg", "<!doctype html>")
    header_only = io.BytesIO()
    picture(3, (300, 300)).save(header_only, "PNG")
    (root / "images/train/header.png").write_bytes(header_only.getvalue()[:40])
    write_text(root / "labels/train/header.txt", "0 0.5 0.5 0.4 0.4\n")
    write_picture(root / "images/val/same.png", 2)
    picture(3, (128, 96)).save(root / "images/val/near.jpg", quality=80)
    for name in ("same", "near"):
        write_text(root / f"labels/val/{name}.txt", "1 0.5 0.5 0.4 0.4\n")
    return root


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}
