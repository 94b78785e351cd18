// Runs model.onnx on a chosen picture: letterbox, network, boxes. Everything happens in this page.
import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs";

const at = (name) => document.getElementById(name);
const say = (text, state) => { at("state").textContent = text; document.body.dataset.state = state; };

// Several threads would need a server that sends cross-origin isolation headers.
ort.env.wasm.numThreads = 1;

const roundHalfEven = (x) => (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));

/** Return how a picture lies on the canvas: the rule of the file's metadata. */
export function letterbox(width, height, size) {
  const longSide = Math.max(width, height);
  const w = Math.max(1, roundHalfEven((width * size) / longSide));
  const h = Math.max(1, roundHalfEven((height * size) / longSide));
  return { w, h, left: Math.floor((size - w) / 2), top: Math.floor((size - h) / 2) };
}

/** Return, for each new pixel of an axis, the old ones it is made of as [index, weight]. */
function axisWeights(from, to, isShrinking) {
  const scale = from / to;
  return Array.from({ length: to }, (_, i) => {
    if (!isShrinking) {
      const position = Math.min(Math.max((i + 0.5) * scale - 0.5, 0), from - 1);
      const low = Math.floor(position), part = position - low;
      return [[low, 1 - part], [Math.min(low + 1, from - 1), part]];
    }
    const start = i * scale, end = Math.min(start + scale, from), parts = [];
    for (let j = Math.floor(start); j < Math.min(Math.ceil(end), from); j++) {
      parts.push([j, (Math.min(end, j + 1) - Math.max(start, j)) / (end - start)]);
    }
    return parts;
  });
}

/** Resize RGBA bytes to RGB: by pixel area when the picture shrinks, bilinearly when it grows. */
export function resize(rgba, width, height, w, h) {
  const isShrinking = Math.max(w, h) < Math.max(width, height);
  const columns = axisWeights(width, w, isShrinking), rows = axisWeights(height, h, isShrinking);
  const wide = new Float32Array(height * w * 3);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < w; x++) {
      for (const [j, weight] of columns[x]) {
        for (let c = 0; c < 3; c++) wide[(y * w + x) * 3 + c] += weight * rgba[(y * width + j) * 4 + c];
      }
    }
  }
  const out = new Uint8ClampedArray(h * w * 3), line = new Float32Array(w * 3);
  for (let y = 0; y < h; y++) {
    line.fill(0);
    for (const [j, weight] of rows[y]) {
      for (let x = 0; x < line.length; x++) line[x] += weight * wide[j * line.length + x];
    }
    out.set(line, y * line.length);  // rounds to the nearest byte
  }
  return out;
}

/** Return the network's input for an ImageData. */
function toTensor(image, box, size, fill) {
  const pixels = resize(image.data, image.width, image.height, box.w, box.h);
  const plane = size * size, input = new Float32Array(3 * plane).fill(fill / 255);
  for (let y = 0; y < box.h; y++) {
    for (let x = 0; x < box.w; x++) {
      const target = (y + box.top) * size + x + box.left;
      for (let c = 0; c < 3; c++) input[c * plane + target] = pixels[(y * box.w + x) * 3 + c] / 255;
    }
  }
  return new ort.Tensor("float32", input, [1, 3, size, size]);
}

/** Return the detections of one picture in its own pixels, best first. */
function toDetections(rows, meta, box, image, least) {
  const clip = (value, most) => Math.min(Math.max(value, 0), most);
  const scaleX = box.w / image.width, scaleY = box.h / image.height, found = [];
  for (let i = 0; i < rows.length; i += 6) {
    const [x1, y1, x2, y2, score, label] = rows.subarray(i, i + 6);
    if (score < least || score <= 0) continue;
    const left = clip((x1 - box.left) / scaleX, image.width), top = clip((y1 - box.top) / scaleY, image.height);
    const right = Math.max(left, clip((x2 - box.left) / scaleX, image.width));
    const bottom = Math.max(top, clip((y2 - box.top) / scaleY, image.height));
    found.push({ name: meta.names[label], label, score, box: [left, top, right, bottom] });
  }
  return found;
}

function draw(bitmap, found) {
  const canvas = at("canvas"), pen = canvas.getContext("2d");
  [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
  pen.drawImage(bitmap, 0, 0);
  const font = Math.max(10, Math.round(0.02 * Math.sqrt(bitmap.width * bitmap.height)));
  pen.lineWidth = Math.max(1, font / 6);
  pen.font = `${font}px system-ui, sans-serif`;
  for (const { name, label, score, box: [left, top, right, bottom] } of [...found].reverse()) {
    const color = `hsl(${(209 + label * 222.5) % 360} 85% 45%)`, text = `${name} ${score.toFixed(2)}`;
    pen.strokeStyle = pen.fillStyle = color;
    pen.strokeRect(left, top, right - left, bottom - top);
    pen.fillRect(left, Math.max(0, top - 1.3 * font), pen.measureText(text).width + 0.6 * font, 1.3 * font);
    pen.fillStyle = "#fff";
    pen.fillText(text, left + 0.3 * font, Math.max(font, top - 0.3 * font));
  }
}

function list(found) {
  const body = at("found").tBodies[0];
  body.replaceChildren(...found.map(({ name, score, box }) => {
    const row = document.createElement("tr");
    for (const text of [name, score.toFixed(3), ...box.map((side) => side.toFixed(1))]) {
      row.insertCell().textContent = text;
    }
    return row;
  }));
  at("found").hidden = found.length === 0;
}

async function detect(session, meta, file) {
  say("Looking…", "busy");
  const bitmap = await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  const pen = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d", { willReadFrequently: true });
  pen.drawImage(bitmap, 0, 0);
  const image = pen.getImageData(0, 0, bitmap.width, bitmap.height), size = meta.image_size[0];
  const box = letterbox(image.width, image.height, size);
  const input = toTensor(image, box, size, meta.letterbox.fill_value);
  const start = performance.now();
  const { detections } = await session.run({ images: input });
  const duration = performance.now() - start;
  const found = toDetections(detections.data, meta, box, image, Number(at("least").value));
  draw(bitmap, found);
  list(found);
  globalThis.found = found;  // for the console
  say(`${found.length} objects, network ${duration.toFixed(0)} ms`, "done");
}

try {
  const meta = await (await fetch("model.json")).json();
  const session = await ort.InferenceSession.create("model.onnx", { executionProviders: ["wasm"] });
  const again = () => {
    const [file] = at("picture").files;
    if (file) detect(session, meta, file).catch((error) => { console.error(error); say(`Failed: ${error.message}`, "failed"); });
  };
  at("picture").addEventListener("change", again);
  at("least").addEventListener("change", again);
  at("picture").disabled = false;
  say(`Ready: ${meta.names.length} classes, ${meta.image_size.join(" x ")} px`, "ready");
} catch (error) {
  console.error(error);
  say(`The model could not be loaded: ${error.message}`, "failed");
}
