// Runs one suite of the module for pages in node, whose WebGPU is Dawn: Chromium's checks and its compiler Tint, on
// whatever driver the Vulkan loader finds.
//
//     node --expose-gc suites.mjs DAWN PAGE DRIVER SUITE ARGUMENTS...
//
// DAWN is the folder of the npm package `webgpu`, PAGE that of suites_web.js, DRIVER is "vulkan", "null" for Dawn's checks
// without a device behind them, or "none" for a page without WebGPU; ARGUMENTS are JSON. Each line of output is a test or
// a failure; the exit status is 1 if there is a failure.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { compileKernels } from "./kernels.mjs";

const [dawn, page, driver, suite, ...values] = process.argv.slice(2);
const load = path => import(pathToFileURL(path));

const { create, globals } = await load(join(dawn, "index.js"));
Object.assign(globalThis, globals);
// wgpu asks the navigator of a window, and takes a global class of that name for a window.
globalThis.Window = class Window {};
const gpu = driver === "none" ? undefined : create([`backend=${driver}`]);
// wgpu takes these by an iterator, as a browser's set has it; Dawn's `keys` is an array.
if (gpu) Object.defineProperty(gpu, "wgslLanguageFeatures", { value: new Set(gpu.wgslLanguageFeatures.keys()) });
Object.defineProperty(globalThis, "navigator", { value: { gpu }, configurable: true });

// As in a browser: nothing may be said on the console's error channel.
const failures = [];
console.error = (...words) => failures.push(words.join(" "));

const module = await load(join(page, "suites_web.js"));
await module.default({ module_or_path: await readFile(join(page, "suites_web_bg.wasm")) });
const kernels = every => compileKernels(gpu, driver, module.kernels(), every);
const suites = { ...module, kernels };
failures.push(...(await suites[suite](...values.map(value => JSON.parse(value)))));

for (const failure of failures) console.log(failure);
// Devices that are still open would keep node alive.
process.exit(failures.length === 0 ? 0 : 1);
