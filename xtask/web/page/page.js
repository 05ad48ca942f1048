// What a page with an engine shows: progress, notices and the device; and how it takes files and a lost device.

export const at = (id) => document.getElementById(id);
export const options = new URLSearchParams(location.search);

export function report(stage, done, total) {
  if (!performance.getEntriesByName(stage).length) performance.mark(stage);
  at("stage").textContent = `${stage}…`;
  at("progress").max = total || 1;
  at("progress").value = done;
}

export function notify(text) {
  at("notice").textContent = text;
  at("notice").hidden = !text;
}

export const sentence = (text) => text.replace(/\.*$/, ".");
export const seconds = (milliseconds) => `${(milliseconds / 1000).toFixed(2)} s`;

/** Fills in the backend, its device and why it was chosen. */
export function showDevice({ backend, name, api, kind, reason }) {
  at("backend").textContent = `${backend} (${backend === "cpu" ? "the CPU, as WebAssembly" : "WebGPU"})`;
  at("device").textContent = [name || "not told by the browser", api, kind].join(", ");
  at("reason").textContent = reason;
}

/** Runs the steps; where the device is lost on the way, opens it again and tries once more. */
export async function reopening(open, ...steps) {
  try {
    for (const step of steps) await step();
  } catch (error) {
    if (error.name !== "DeviceLost") throw error;
    notify(`${sentence(error.message)} It was opened again.`);
    for (const step of new Set([open, ...steps])) await step();
  }
}

/** Gives `take` the files that are chosen, and those that are dropped on `target`, which has the class `over` meanwhile. */
export function takeFiles(target, take) {
  at("file").addEventListener("change", () => take(at("file").files[0]));
  target.addEventListener("dragover", (event) => {
    event.preventDefault();
    target.classList.add("over");
  });
  target.addEventListener("dragleave", () => target.classList.remove("over"));
  target.addEventListener("drop", (event) => {
    event.preventDefault();
    target.classList.remove("over");
    take(event.dataTransfer.files[0]);
  });
}
