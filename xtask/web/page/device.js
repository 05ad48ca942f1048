// The device of an engine that is opened, in a worker or in the page itself.

/** Opens `backend` by the module's `Engine`, and tells `report` before. Returns what is opened, and its device. */
export async function openDevice(Engine, backend, report) {
  report("Opening the device", 0, 1);
  const opened = await Engine.open(backend);
  return [opened, await describe(opened)];
}

/** The device as the module tells it, by the browser's name where wgpu has none, which is so for most. */
async function describe(opened) {
  const device = JSON.parse(opened.device());
  if (device.backend === "webgpu") device.name ||= await adapterName();
  return device;
}

async function adapterName() {
  const { vendor, architecture } = (await navigator.gpu.requestAdapter())?.info ?? {};
  return [vendor, architecture].filter(Boolean).join(" ");
}
