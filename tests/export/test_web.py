"""The page that runs a network in the browser, in a real one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

import lucid_yolo
from browser import Browser
from exported import export_untrained, untrained_ckpt
from lucid_yolo.data.sources import resize_image
from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.export.web import vendor
from lucid_yolo.geometry.letterbox import letterbox

RUNTIME = Path(__file__).parents[2] / "build" / "web" / "node_modules" / "onnxruntime-web"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not RUNTIME.is_dir(), reason="onnxruntime-web is not in build/web; `make test-browser` fetches it"
    ),
]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = export_untrained(tmp_path_factory, "web", "page.web", size_px=(64, 64))
    vendor(folder, RUNTIME)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Browser]:
    with Browser() as opened:
        opened.open(address, until="document.body.dataset.state === 'ready'")
        yield opened


def test_it_finds_what_eager_finds_in_a_picture(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    draw_shapes(tmp_path / "drawn", 1, 4, image_size_px=320)
    least = 0.1
    browser.evaluate(f"document.getElementById('least').value = {least}")
    model = lucid_yolo.load(untrained_ckpt(tmp_path_factory), "cpu", conf=least)
    num_found = 0
    for number, source in enumerate(sorted((tmp_path / "drawn" / "images" / "val").iterdir())):
        picture = tmp_path / f"{number}.png"  # lossless, and not square
        Image.open(source).crop((0, 20 * number, 320, 320)).save(picture)
        (expected,) = model.predict(picture)
        browser.evaluate("document.body.dataset.state = 'waiting'")
        browser.choose_files("#picture", [picture])
        browser.wait("document.body.dataset.state === 'done'")
        found = browser.evaluate("globalThis.found")
        assert [row["label"] for row in found] == expected.boxes.cls.tolist()
        np.testing.assert_allclose([row["score"] for row in found], expected.boxes.conf.numpy(), atol=0.02)
        boxes = np.array([row["box"] for row in found]).reshape(-1, 4)
        np.testing.assert_allclose(boxes, expected.boxes.xyxy.numpy(), atol=1.5)
        assert f"{len(found)} objects" in browser.text()
        num_found += len(found)
    assert num_found > 5
    browser.screenshot(tmp_path / "page.png")
    assert browser.errors == []


@pytest.mark.parametrize(
    ("height", "width"), [(320, 240), (97, 333), (50, 70), (160, 160), (161, 5)], ids=lambda side: str(side)
)
def test_its_letterbox_and_resize_are_ours(browser: Browser, height: int, width: int, rng: np.random.Generator) -> None:
    coarse = rng.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8)
    image = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR)
    box = letterbox(height, width, 160)
    rgba = np.dstack([image, np.full((height, width), 255, np.uint8)]).ravel().tolist()
    script = f"""import('./detect.js').then(page => {{
        const box = page.letterbox({width}, {height}, 160);
        return JSON.stringify([box, Array.from(page.resize({json.dumps(rgba)}, {width}, {height}, box.w, box.h))]);
    }})"""
    found, pixels = json.loads(browser.evaluate(script))
    assert found == {"w": box.width_px, "h": box.height_px, "left": box.left_px, "top": box.top_px}
    ours = resize_image(image, box.height_px, box.width_px).astype(int)
    difference = np.abs(np.array(pixels).reshape(ours.shape) - ours)
    assert difference.max() <= 1
    assert difference.mean() < 0.3
