// The page: what is shown, and when the engine is asked. `?backend=cpu` chooses a backend, `?thread=main` runs the
// engine in the page's own thread, where WebGPU works and the CPU would block.

import { connect } from "./connect.js";
import { at, notify, options, reopening, report, seconds, showDevice, takeFiles } from "./page.js";

const TOP = 10;

function show(state) {
  document.body.dataset.state = state;
  const busy = state === "loading" || state === "searching";
  at("work").hidden = !busy;
  at("search").disabled = busy || state === "failed";
  at("choice").disabled = busy;
}

async function open() {
  show("loading");
  const start = performance.now();
  const device = await engine.open(at("choice").value, report);
  showDevice(device);
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

/** Runs the steps, and shows why one failed. */
async function attempt(...steps) {
  try {
    await reopening(open, ...steps);
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
takeFiles(at("document"), take);

at("document").value = await (await fetch("sample.txt")).text();
const engine = await connect("open", "rank");
await attempt(open);
