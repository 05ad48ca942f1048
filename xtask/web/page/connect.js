// The engine of a page, in a worker or, with `?thread=main`, in the page's own thread, where WebGPU works and the
// CPU would block.

/** The engine's `names`, functions that take a progress as their last argument, and `close`, which ends a worker. */
export async function connect(...names) {
  if (new URLSearchParams(location.search).get("thread") === "main") {
    return { ...await import("./engine.js"), close() {} };
  }
  const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  const calls = new Map();
  let last = 0;
  worker.addEventListener("message", ({ data }) => {
    const call = calls.get(data.id);
    if (data.progress) return call.report(...data.progress);
    calls.delete(data.id);
    if (!data.error) return call.resolve(data.result);
    call.reject(Object.assign(new Error(data.error.message), { name: data.error.name }));
  });
  worker.addEventListener("error", (event) => {
    for (const call of calls.values()) call.reject(new Error(event.message ?? "the worker failed"));
  });
  const method = (name) => (...args) => new Promise((resolve, reject) => {
    const report = args.pop();
    calls.set(++last, { resolve, reject, report });
    worker.postMessage({ id: last, method: name, args });
  });
  return { ...Object.fromEntries(names.map((name) => [name, method(name)])), close: () => worker.terminate() };
}
