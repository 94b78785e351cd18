"""Times exported ONNX files side by side with onnxruntime on a CPU.

The peer's files are made by its own package in a process of its own, as a black box: its code and its weights are not
read, its networks are untrained. Every round runs every file once in an order that turns around, so that a load on
the machine meets all of them; the score is the median of the rounds' medians. CPU time of the process is given beside
wall time, because it depends less on what else runs.

    python benchmarks/cpu_inference.py --peer_path FOLDER_OF_THE_PEERS_PACKAGE
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
import torch

from lucid_yolo.export.formats import write
from lucid_yolo.models.network import Network
from lucid_yolo.runtime.checkpoint_file import ModelMeta
from lucid_yolo.runtime.deployed_meta import DeployedMeta
from lucid_yolo.structures import ClassMap
from lucid_yolo.tasks import DetectTask

NUM_CLASSES = 80
SIZE_PX = 640
PEER = """
import sys
from ultralytics import YOLO, __version__
print(__version__, YOLO(f"yolo26{sys.argv[1]}.yaml").export(format="onnx", imgsz=640, nms=False), sep="|")
"""


def export_ours(variant: str, folder: Path) -> Path:
    torch.manual_seed(0)
    network = Network(variant, DetectTask(NUM_CLASSES).stems).eval()  # type: ignore[arg-type]
    class_map = ClassMap.from_names([f"class {i}" for i in range(NUM_CLASSES)])
    meta = DeployedMeta(ModelMeta("detect", variant, class_map, SIZE_PX), (SIZE_PX, SIZE_PX))  # type: ignore[arg-type]
    path = folder / f"ours_{variant}.onnx"
    write("onnx", network, meta, path)
    return path


def export_peer(variant: str, folder: Path, peer_path: str) -> tuple[Path, str]:
    environment = os.environ | {"PYTHONPATH": peer_path, "YOLO_CONFIG_DIR": str(folder), "YOLO_OFFLINE": "true"}
    command = [sys.executable, "-c", PEER, variant]
    output = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
    version, name = output.strip().splitlines()[-1].split("|")
    return folder / name, version


def time_sessions(paths: list[Path], threads: int, num_rounds: int, num_runs: int) -> list[tuple[float, float]]:
    """Return (wall, CPU) milliseconds per picture of every file: the median over rounds of the median over runs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    sessions = [onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"]) for path in paths]
    pixels = np.random.default_rng(0).random((1, 3, SIZE_PX, SIZE_PX), dtype=np.float32)
    feeds = [{session.get_inputs()[0].name: pixels} for session in sessions]
    for session, feed in zip(sessions, feeds, strict=True):
        session.run(None, feed)
    rounds: list[list[tuple[float, float]]] = []
    for _ in range(num_rounds):
        times: list[list[tuple[float, float]]] = [[] for _ in paths]
        for run in range(num_runs):
            order = range(len(paths)) if run % 2 == 0 else reversed(range(len(paths)))
            for i in order:
                wall, cpu = time.perf_counter(), time.process_time()
                sessions[i].run(None, feeds[i])
                times[i].append((1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)))
        rounds.append([(median(w for w, _ in rows), median(c for _, c in rows)) for rows in times])
    return [(median(r[i][0] for r in rounds), median(r[i][1] for r in rounds)) for i in range(len(paths))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer_path", required=True, help="folder with the peer's package (pip install --target)")
    parser.add_argument("--variants", nargs="+", default=["n", "s"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=20, help="runs of every file in a round")
    args = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, {args.threads} threads")
    print(f"load {os.getloadavg()[0]:.1f} at the start")
    print(f"Python {platform.python_version()}, torch {torch.__version__}, onnxruntime {onnxruntime.__version__}")
    print("\n| file | nodes | wall ms | CPU ms | wall ratio | CPU ratio |\n|---|---|---|---|---|---|")
    for variant in args.variants:
        with TemporaryDirectory() as name:
            folder = Path(name)
            peer, version = export_peer(variant, folder, args.peer_path)
            paths = [export_ours(variant, folder), peer]
            ours, theirs = time_sessions(paths, args.threads, args.rounds, args.runs)
            nodes = [sum(n.op_type not in ("Constant", "Identity") for n in onnx.load(p).graph.node) for p in paths]
        ratios = f"{ours[0] / theirs[0]:.3f} | {ours[1] / theirs[1]:.3f}"
        print(f"| lucid-yolo {variant} | {nodes[0]} | {ours[0]:.1f} | {ours[1]:.1f} | {ratios} |")
        print(
            f"| ultralytics {version} yolo26{variant} | {nodes[1]} | {theirs[0]:.1f} | {theirs[1]:.1f} | | |",
            flush=True,
        )
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
