#!/usr/bin/env bash
# From nothing to a trained detector on a CPU: fetch pictures, train, evaluate, draw predictions.
set -euo pipefail

data=demo/trees
run=demo/run
found=demo/predictions
rm -rf "$run" "$found"

lucid-data demo --name trees --data_root "$data"

# Scale n at 320 px from scratch. Small batches give more updates in the same time than the recipe's 16.
lucid-yolo fit --config detect --data.data_root "$data" --run_dir "$run" \
  --model.image_size 320 --data.batch_size 4 \
  --trainer.max_epochs 80 --trainer.check_val_every_n_epoch 8

lucid-eval --ckpt_path "$run/checkpoints/best.ckpt" --data_root "$data" --num_workers 0
lucid-predict --ckpt_path "$run/checkpoints/best.ckpt" --source "$data/images/val" --save_dir "$found" --conf 0.15

echo "pictures: $found and $run/val_predictions.jpg   curves: $run/curves.png   numbers: $run/report.json"
