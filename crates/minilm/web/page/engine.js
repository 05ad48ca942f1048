// The engine with its model: opens a device, fetches the weights, warms up. Runs in a worker or in the page itself.

import { openDevice } from "./device.js";
import init, { Engine } from "./minilm_web.js";

const FILES = ["config.json", "tokenizer.json", "model.safetensors"];
const CACHE = "minilm-1";

let engine;

/** Opens `backend` with the model on it. `report(stage, done, total)` hears of progress. Returns the device. */
export async function open(backend, report) {
  await init();
  engine?.free();
  engine = undefined;
  const [opened, device] = await openDevice(Engine, backend, report);
  report("Fetching the model", 0, 1);
  const [config, tokenizer, weights] = await fetchAll(report);
  await opened.load(config, tokenizer, weights, (done, total) => report("Loading the model", done, total));
  await opened.warm_up((done, total) => report("Warming up", done, total));
  engine = opened;
  return device;
}

/** The passages of `text` that are nearest to `query`, best first. */
export async function rank(query, text, top, report) {
  return JSON.parse(await engine.rank(query, text, top, (done, total) => report("Embedding", done, total)));
}

/** The vector of a text. */
export async function embed(text) {
  return engine.embed(text);
}

async function fetchAll(report) {
  const done = new Map(), total = new Map();
  const sum = (sizes) => [...sizes.values()].reduce((a, b) => a + b, 0);
  return Promise.all(FILES.map((name) => bytes(name, (received, size) => {
    done.set(name, received);
    total.set(name, size);
    report("Fetching the model", sum(done), sum(total));
  })));
}

/** A file of the model, from the browser's cache if it is there. */
async function bytes(name, progress) {
  const url = new URL(`model/${name}`, import.meta.url).href;
  // Only pages that came by https or from localhost have a cache.
  const cache = await globalThis.caches?.open(CACHE);
  const kept = await cache?.match(url);
  const response = kept ?? await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  const size = Number(response.headers.get("Content-Length"));
  const parts = [];
  let received = 0;
  for (const reader = response.body.getReader();;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    received += value.length;
    progress(received, Math.max(size, received));
  }
  const blob = new Blob(parts);
  if (!kept) await cache?.put(url, new Response(blob, { headers: { "Content-Length": `${received}` } }));
  return new Uint8Array(await blob.arrayBuffer());
}
