# %% [markdown]
# # Train on made pictures
#
# Draws a small data set, trains the smallest scale on it on this machine, and looks at what the model finds. Minutes on
# a CPU; with `LUCID_YOLO_NOTEBOOK_BUDGET=fast` in the environment it is seconds, and the model then finds little.

# %%
import os
from pathlib import Path

import lucid_yolo
from lucid_yolo.data.synthetic import draw_shapes

is_fast = os.environ.get("LUCID_YOLO_NOTEBOOK_BUDGET") == "fast"
work = Path("notebook_runs")

# %% [markdown]
# ## The data
#
# Circles, rectangles, triangles, stars and crosses, as YOLO text. In a shell: `lucid-data demo --name shapes`.

# %%
data_root = work / "shapes"
side = 96 if is_fast else 160
draw_shapes(
    data_root, num_train=16 if is_fast else 128, num_val=4 if is_fast else 32, image_size_px=side, object_px=(12, 60)
)
sorted(str(path.relative_to(data_root)) for path in data_root.rglob("*"))[:6]

# %% [markdown]
# ## The training
#
# The same code and the same flags as `lucid-yolo fit`. Every flag of the command is an argument here.

# %%
result = lucid_yolo.train(
    "detect",
    data_root=data_root,
    variant="n",
    max_epochs=2 if is_fast else 40,
    model={"image_size": side},
    data={"batch_size": 8, "num_workers": 0},
    trainer={"accelerator": "cpu", "enable_progress_bar": False},
    run_dir=str(work / "train"),
)
result.metrics["map50"], result.run_dir

# %% [markdown]
# ## The run folder
#
# Curves, report and checkpoints lie there; `report.html` shows all of it on one page. The first batch as the network
# sees it is always worth a look:

# %%
from PIL import Image

Image.open(result.run_dir / "train_batch.jpg")

# %% [markdown]
# ## What it finds

# %%
model = result.load(conf=0.05 if is_fast else 0.25)
pictures = sorted((data_root / "images" / "val").iterdir())
found = model(pictures[:2])
[(Path(result.path).name, len(result), result.boxes.xyxy.shape) for result in found]

# %%
found[0]
