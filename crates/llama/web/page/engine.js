// The engine with its model: opens a device, loads a file, answers. Runs in a worker or in the page itself.

import { openDevice } from "./device.js";
import init, { Engine } from "./llama_web.js";

let engine;

/** Opens `backend` with the model of `file`, a Blob, on it. `report(stage, done, total)` hears of progress. Returns
    the device, the model and the memory in use. */
export async function open(backend, file, context, report) {
  await init();
  engine?.free();
  engine = undefined;
  const [opened, device] = await openDevice(Engine, backend, report);
  report("Loading the model", 0, 1);
  const told = (done, total) => report("Loading the model", done, total);
  const model = JSON.parse(await opened.load(file, context, told));
  report("Warming up", 0, 1);
  // Without it, answers wait for kernels as they come to them.
  await opened.warm_up().catch((error) => console.warn("kernels aren't compiled ahead:", error));
  engine = opened;
  return { device, model, memory: JSON.parse(opened.memory()) };
}

/** Begins an answer to messages: `{ prompt, known, forgotten }`. */
export async function begin(messages, options) {
  return JSON.parse(engine.begin(JSON.stringify(messages), JSON.stringify(options)));
}

/** Goes on with the answer: `{ read, text, tokens, ended }`, and the `memory` in use. */
export async function next() {
  const step = JSON.parse(await engine.next());
  return { ...step, memory: JSON.parse(engine.memory()) };
}
