"""A page that runs the ONNX file in the browser, through onnxruntime-web."""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path

from lucid_yolo.export import onnx
from lucid_yolo.models.network import Network
from lucid_yolo.runtime.deployed_meta import DeployedMeta
from lucid_yolo.runtime.json_file import write_json

MODEL_FILE = "model.onnx"
RUNTIME_FOLDER = Path("node_modules", "onnxruntime-web")
RUNTIME_FILES = ("package.json", "dist/ort.wasm.bundle.min.mjs", "dist/ort-wasm-simd-threaded.wasm")


def write(network: Network, meta: DeployedMeta, path: Path) -> None:
    """Write a folder with page, script, model and ``package.json``; ``npm install`` in it fetches the runtime.

    Args:
        network: A trained network.
        meta: Goes into the model and beside it.
        path: Folder to write; files of the same names are replaced.
    """
    path.mkdir(parents=True, exist_ok=True)
    onnx.write(network, meta, path / MODEL_FILE)
    write_json(path / "model.json", meta.to_plain())
    with as_file(files("lucid_yolo.export").joinpath("page")) as page:
        for source in page.iterdir():
            shutil.copyfile(source, path / source.name)


def vendor(path: Path, package: Path) -> None:
    """Copy the runtime out of an unpacked npm package ``onnxruntime-web``.

    Args:
        path: A folder of :func:`write`.
        package: Folder of the package.

    Raises:
        FileNotFoundError: It lacks a file.
    """
    for name in RUNTIME_FILES:
        if not (package / name).is_file():
            raise FileNotFoundError(f"web_runtime: expected the npm package onnxruntime-web, found no {package / name}")
        target = path / RUNTIME_FOLDER / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package / name, target)
