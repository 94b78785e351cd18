#!/usr/bin/env bash
# From nothing to a trained detector on a CPU: make pictures, train, evaluate, draw predictions.
set -euo pipefail

data=demo/trees
lucid-data demo --name trees --data_root "$data"
lucid-yolo fit --config detect --data.data_root "$data"

run=$(find runs/detect -mindepth 1 -maxdepth 1 -type d | sort -V | tail -n 1)
lucid-eval --ckpt_path "$run/checkpoints/best.ckpt" --data_root "$data"
lucid-predict --ckpt_path "$run/checkpoints/best.ckpt" --source "$data/images/val" --output "$run/predictions"

echo "pictures: $run/predictions   curves: $run/metrics.csv, $run/report.html"
