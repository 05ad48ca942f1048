// The page: what is shown, and when the engine is asked. `?backend=cpu` chooses a backend, `?thread=main` runs the
// engine in the page's own thread, where WebGPU works and the CPU would block.

import { connect } from "./connect.js";

const at = (id) => document.getElementById(id);
const options = new URLSearchParams(location.search);
const TOP = 10;

function show(state) {
  document.body.dataset.state = state;
  const busy = state === "loading" || state === "searching";
  at("work").hidden = !busy;
  at("search").disabled = busy || state === "failed";
  at("choice").disabled = busy;
}

function report(stage, done, total) {
  if (!performance.getEntriesByName(stage).length) performance.mark(stage);
  at("stage").textContent = `${stage}…`;
  at("progress").max = total || 1;
  at("progress").value = done;
}

function notify(text) {
  at("notice").textContent = text;
  at("notice").hidden = !text;
}

const seconds = (milliseconds) => `${(milliseconds / 1000).toFixed(2)} s`;

async function open() {
  show("loading");
  const start = performance.now();
  const device = await engine.open(at("choice").value, report);
  const where = device.backend === "cpu" ? "the CPU, as WebAssembly" : "WebGPU";
  at("backend").textContent = `${device.backend} (${where})`;
  at("device").textContent = [device.name || "not told by the browser", device.api, device.kind].join(", ");
  at("reason").textContent = device.reason;
  at("timings").textContent = `ready after ${seconds(performance.now() - start)}`;
  show("ready");
}

async function rank() {
  show("searching");
  const ranking = await engine.rank(at("query").value, at("document").value, TOP, report);
  at("timings").textContent = `query ${seconds(ranking.query_milliseconds)}, ${ranking.passages} passages `
    + `(${ranking.tokens} tokens) ${seconds(ranking.embed_milliseconds)}`;
  at("results").replaceChildren(...ranking.results.map((hit) => {
    const item = document.createElement("li"), score = document.createElement("b");
    score.textContent = hit.score.toFixed(3);
    Object.assign(item.dataset, { score: hit.score, line: hit.line });
    item.append(score, hit.text);
    return item;
  }));
  show("ranked");
}

/** Runs `step`; where the device is lost on the way, opens it again and tries once more. */
async function attempt(...steps) {
  try {
    try {
      for (const step of steps) await step();
    } catch (error) {
      if (error.name !== "DeviceLost") throw error;
      notify(`${error.message}. It was opened again.`);
      for (const step of new Set([open, ...steps])) await step();
    }
  } catch (error) {
    notify(error.message);
    show("failed");
    console.error(error);
  }
}

async function take(file) {
  if (file) at("document").value = await file.text();
}

at("choice").value = options.get("backend") ?? "auto";
at("choice").addEventListener("change", () => attempt(open));
at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  notify("");
  attempt(rank);
});
at("file").addEventListener("change", () => take(at("file").files[0]));
at("document").addEventListener("dragover", (event) => {
  event.preventDefault();
  at("document").classList.add("over");
});
at("document").addEventListener("dragleave", () => at("document").classList.remove("over"));
at("document").addEventListener("drop", (event) => {
  event.preventDefault();
  at("document").classList.remove("over");
  take(event.dataTransfer.files[0]);
});

at("document").value = await (await fetch("sample.txt")).text();
const engine = await connect("open", "rank");
await attempt(open);
