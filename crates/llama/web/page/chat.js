// The page: what is shown, and when the engine is asked. Its options are `backend`, `thread=main`, `context`,
// `temperature`, `seed` and `tokens`, as in chat.html?backend=cpu&temperature=0.

import { connect } from "./connect.js";
import * as models from "./models.js";
import { at, notify, options, reopening, report, seconds, sentence, showDevice, takeFiles } from "./page.js";

const CONTEXT = Number(options.get("context") ?? 4096);

let engine;
let messages = [];
let stopped = false;

function show(state) {
  document.body.dataset.state = state;
  const busy = state === "loading" || state === "answering";
  at("work").hidden = !busy;
  at("stop").disabled = state !== "answering";
  at("send").disabled = state !== "ready";
  for (const id of ["new", "choice", "model", "file"]) at(id).disabled = busy;
  at("remove").disabled = busy || models.isShipped(at("model").value);
}

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

function showMemory({ device, module }) {
  at("memory").textContent = `${megabytes(device)} on the device, ${megabytes(module)} in the module`;
}

async function listModels(chosen) {
  const names = await models.list();
  at("model").replaceChildren(...names.map((name) => new Option(name)));
  at("model").value = names.includes(chosen) ? chosen : names[0];
}

/** Opens the chosen device with a model: the chosen one, unless it is given. */
async function open(file) {
  show("loading");
  const start = performance.now();
  report("Opening the file", 0, 1);
  file ??= await models.get(at("model").value);
  engine ??= await connect("open", "begin", "next");
  const { device, model, memory } = await engine.open(at("choice").value, file, CONTEXT, report);
  showDevice(device);
  at("about").textContent = `${model.name || "without a name"}: ${model.architecture}, `
    + `${(model.parameters / 1e6).toFixed(1)} million numbers in ${megabytes(model.bytes)}, `
    + `${model.context} tokens of context${model.chats ? "" : "; it goes on with texts"}`;
  showMemory(memory);
  at("speed").textContent = `ready after ${seconds(performance.now() - start)}`;
  show("ready");
}

function bubble(role, text) {
  const item = document.createElement("li");
  item.dataset.role = role;
  item.textContent = text;
  at("log").append(item);
  item.scrollIntoView({ block: "nearest" });
  return item;
}

/** Answers the last message. What there is of the answer when it is stopped stays. */
async function answer() {
  show("answering");
  report("Reading", 0, 1);
  stopped = false;
  const number = (id, least) => Math.max(at(id).valueAsNumber || 0, least);
  const [temperature, seed, tokens] = [number("temperature", 0), Math.trunc(number("seed", 0)), Math.trunc(number("tokens", 1))];
  const begun = await engine.begin(messages, { temperature, seed, tokens }, report);
  if (begun.forgotten) notify(`The context is full: ${begun.forgotten} earlier messages are forgotten.`);
  messages.splice(0, begun.forgotten);
  const item = bubble("assistant", "");
  const start = performance.now();
  let made = 0, text = "", first, step;
  try {
    do {
      step = await engine.next(report);
      if (step.read !== null) {
        report("Reading", step.read, begun.prompt);
        continue;
      }
      text += step.text;
      made += step.tokens;
      item.textContent = text;
      // The first ones come with the prompt.
      first ??= { at: performance.now(), made };
      const rate = (made - first.made) / (performance.now() - first.at) * 1000;
      Object.assign(item.dataset, { tokens: made, rate: rate || 0 });
      at("speed").textContent = `${begun.prompt - begun.known} tokens read in ${seconds(first.at - start)}, ${made} made`
        + (rate ? `, ${rate.toFixed(1)} tokens/s` : "");
      showMemory(step.memory);
      report("Answering", made, tokens);
    } while (!step.ended && !stopped);
  } catch (error) {
    item.remove();
    throw error;
  }
  if (step.ended === "Context") notify("The context is full: the answer ends here.");
  messages.push({ role: "assistant", content: text });
  show("ready");
}

/** Answers, and the message is taken back where the model can't take it. */
async function ask() {
  try {
    await answer();
  } catch (error) {
    if (!["Error", "File"].includes(error.name)) throw error;
    messages.pop();
    at("log").lastElementChild.remove();
    notify(sentence(error.message));
    show("ready");
  }
}

/** Runs the steps, and says whether they succeeded. */
async function attempt(...steps) {
  try {
    await reopening(open, ...steps);
    return true;
  } catch (error) {
    fail(error);
    return false;
  }
}

function fail(error) {
  if (error.name === "RuntimeError") {
    // The module is in no state to go on.
    engine?.close();
    engine = undefined;
    notify(`The engine stopped (${error.message}), most often for lack of memory: a module has 4 GB at most. `
      + "Choose a smaller model, or the device again.");
  } else {
    const words = { NoAdapter: "There is no WebGPU here: ", OutOfMemory: "The model is too large: " };
    notify((words[error.name] ?? "") + sentence(error.message));
  }
  // A file is the visitor's affair; what is wrong with the device is for the console too.
  if (error.name !== "File") console.error(error);
  show("failed");
}

/** Opens a file, and keeps it if it is a model. Otherwise the one before is opened again. */
async function take(file) {
  if (!file || ["loading", "answering"].includes(document.body.dataset.state)) return;
  notify("");
  forget();
  if (!await attempt(() => open(file))) {
    const [notice, before] = [at("notice").textContent, at("model").value];
    await attempt(open);
    notify(`${file.name}: ${notice} ${before} is open.`);
    return;
  }
  show("loading");
  try {
    await models.keep(file, (done, total) => report(`Keeping ${file.name}`, done, total));
    await listModels(file.name);
  } catch (error) {
    notify(`${file.name} is open, but it can't be kept for the next visit: ${sentence(error.message)}`);
    at("model").append(new Option(file.name));
    at("model").value = file.name;
  }
  show("ready");
}

function forget() {
  messages = [];
  at("log").replaceChildren();
}

async function reopen() {
  notify("");
  forget();
  await attempt(open);
}

for (const id of ["temperature", "seed", "tokens"]) at(id).value = options.get(id) ?? at(id).value;
at("choice").value = options.get("backend") ?? "auto";
at("choice").addEventListener("change", reopen);
at("model").addEventListener("change", reopen);
at("new").addEventListener("click", forget);
at("stop").addEventListener("click", () => { stopped = true; });
at("remove").addEventListener("click", async () => {
  await models.remove(at("model").value);
  await listModels();
  await reopen();
});
at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = at("message").value;
  if (!content || document.body.dataset.state !== "ready") return;
  notify("");
  messages.push({ role: "user", content });
  bubble("user", content);
  at("message").value = "";
  attempt(ask);
});
at("message").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey) return;
  event.preventDefault();
  at("form").requestSubmit();
});
takeFiles(document.body, take);

await listModels(options.get("model"));
await attempt(open);
