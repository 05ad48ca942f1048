// The models: the one that comes with the page, and files that were given, which are kept in the origin's private
// file system, where no other page sees them.

/** The model that comes with the page. */
const SHIPPED = "bytes-1m-q8_0.gguf";

const FOLDER = "models";

async function folder() {
  const root = await navigator.storage?.getDirectory?.();
  return root?.getDirectoryHandle(FOLDER, { create: true });
}

/** The names of all models, the shipped one first. */
export async function list() {
  const kept = [];
  try {
    for await (const [name, handle] of await folder() ?? []) {
      if (handle.kind === "file") kept.push(name);
    }
  } catch (error) {
    // A browser may refuse, as some do in private windows: then nothing is kept.
    console.warn(`no files are kept: ${error.message}`);
  }
  return [SHIPPED, ...kept.filter((name) => name !== SHIPPED).sort()];
}

export const isShipped = (name) => name === SHIPPED;

/** A model's file, as a Blob. */
export async function get(name) {
  if (!isShipped(name)) return (await (await folder()).getFileHandle(name)).getFile();
  const url = new URL(name, import.meta.url);
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  return response.blob();
}

/** Keeps a file, by its name. `progress(done, total)` hears of its bytes. */
export async function keep(file, progress) {
  const kept = await folder();
  if (!kept) throw new Error("this browser has no private files");
  const { quota = Infinity, usage = 0 } = await navigator.storage.estimate();
  if (file.size > quota - usage) throw new Error(`the browser has room for ${quota - usage} bytes more`);
  const handle = await kept.getFileHandle(file.name, { create: true });
  try {
    let done = 0;
    const counted = new TransformStream({
      transform(chunk, controller) {
        progress(done += chunk.length, file.size);
        controller.enqueue(chunk);
      },
    });
    await file.stream().pipeThrough(counted).pipeTo(await handle.createWritable());
  } catch (error) {
    await kept.removeEntry(file.name);
    throw error;
  }
}

/** Forgets a file. */
export async function remove(name) {
  await (await folder()).removeEntry(name);
}
