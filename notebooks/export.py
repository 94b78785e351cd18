# %% [markdown]
# # Export and run
#
# Trains for a moment, writes the deployed network as ONNX, compares the file with eager detection by detection, runs
# it. Needs the extra: `pip install -e ".[export]"`.

# %%
import os
from pathlib import Path

import lucid_yolo
from lucid_yolo.cli import export
from lucid_yolo.data.synthetic import draw_shapes

is_fast = os.environ.get("LUCID_YOLO_NOTEBOOK_BUDGET") == "fast"
work = Path("notebook_runs")
data_root = work / "export_shapes"
side = 64 if is_fast else 160
draw_shapes(
    data_root, num_train=16 if is_fast else 128, num_val=4 if is_fast else 16, image_size_px=side, object_px=(12, 40)
)

# %%
trained = lucid_yolo.train(
    "detect",
    data_root=data_root,
    max_epochs=1 if is_fast else 30,
    model={"image_size": side},
    data={"batch_size": 8, "num_workers": 0},
    trainer={"accelerator": "cpu", "enable_progress_bar": False},
    run_dir=str(work / "export"),
)
trained.best_ckpt

# %% [markdown]
# ## Export, with the gate
#
# In a shell: `lucid-export --ckpt_path best.ckpt --format onnx --data_root my_dataset`. The exit code is 0 when every
# detection has its counterpart.

# %%
code = export.main(["--ckpt_path", str(trained.best_ckpt), "--format", "onnx", "--data_root", str(data_root)])
assert code == 0

# %%
from PIL import Image

onnx_path = trained.best_ckpt.with_suffix(".onnx")
Image.open(onnx_path.with_name("best.onnx.worst.png"))

# %% [markdown]
# ## Run the file
#
# `lucid_yolo.load`, `lucid-predict` and `lucid-eval` take it like a checkpoint.

# %%
pictures = sorted((data_root / "images" / "val").iterdir())
options = {"device": "cpu", "conf": 0.01, "max_det": 5}
for path in (trained.best_ckpt, onnx_path):
    result = lucid_yolo.load(path, **options)(pictures[0])[0]
    print(path.name, [(row["name"], round(row["confidence"], 4)) for row in result.summary()])
