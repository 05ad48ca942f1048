// The engine in a thread of its own: { id, method, args } in, { id, result | error | progress } out.

import * as engine from "./engine.js";

addEventListener("message", async ({ data: { id, method, args } }) => {
  const report = (...progress) => postMessage({ id, progress });
  try {
    postMessage({ id, result: await engine[method](...args, report) });
  } catch (error) {
    postMessage({ id, error: { name: error.name, message: error.message } });
  }
});
