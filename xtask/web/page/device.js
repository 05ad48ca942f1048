// The device of an engine that is opened, in a worker or in the page itself.

/** The device as the module tells it, by the browser's name where wgpu has none, which is so for most. */
export async function describe(opened) {
  const device = JSON.parse(opened.device());
  if (device.backend === "webgpu") device.name ||= await adapterName();
  return device;
}

async function adapterName() {
  const { vendor, architecture } = (await navigator.gpu.requestAdapter())?.info ?? {};
  return [vendor, architecture].filter(Boolean).join(" ");
}
