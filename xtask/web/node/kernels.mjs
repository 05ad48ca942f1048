// The kernels that a page may be given, through Tint, and through the driver's compiler where there is a driver.

// How many are compiled at once.
const AT_ONCE = 8;

// Node doesn't see the memory of compiled kernels, so it is told after so many of them to collect what is dead.
const COLLECT = 256;

// Compiles one in `every`; a line for each that has an error or a warning.
export async function compileKernels(gpu, driver, all, every) {
    const adapter = await gpu.requestAdapter();
    if (!adapter) return ["there is no adapter"];
    if (!adapter.features.has("shader-f16")) return ["the adapter has no f16, so half of the kernels can't be tested"];
    // As wgpu opens it: with all that the adapter has.
    const { maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX } =
        adapter.limits;
    const device = await adapter.requestDevice({
        requiredFeatures: ["shader-f16"],
        requiredLimits: {
            maxComputeWorkgroupStorageSize,
            maxComputeInvocationsPerWorkgroup,
            maxComputeWorkgroupSizeX,
        },
    });
    const kernels = all.filter((_, index) => index % every === 0);
    const check = driver === "null" ? readText : compilePipeline;
    const start = performance.now();
    const failures = [];
    const waiting = kernels.entries();
    const worker = async () => {
        for (const [index, kernel] of waiting) {
            const faults = await check(device, kernel);
            if (faults.length > 0) failures.push(`${kernel.label}: ${faults.join("\n    ")}`);
            if (index % COLLECT === 0) globalThis.gc?.();
        }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    if (kernels.length === 0) failures.push("there are no kernels");
    const outcome = failures.length === 0 ? "ok" : `FAILED, ${failures.length}`;
    const seconds = ((performance.now() - start) / 1e3).toFixed(1);
    console.log(`test kernels/${driver} ... ${outcome} (${kernels.length} of ${all.length} kernels, ${seconds} s)`);
    return failures;
}

// What Tint says of a kernel's text: its errors and warnings, each with its place and the notes that explain it.
async function readText(device, { label, text }) {
    return messagesOf(device.createShaderModule({ label, code: text }));
}

async function messagesOf(module) {
    const { messages } = await module.getCompilationInfo();
    return messages.map(({ type, lineNum, linePos, message }) => `${type} at ${lineNum}:${linePos}: ${message}`);
}

// What Tint and the driver say of a kernel.
async function compilePipeline(device, { label, text, reads, writes }) {
    const module = device.createShaderModule({ label, code: text });
    const faults = await messagesOf(module);
    try {
        const layout = layoutOf(device, reads, writes);
        await device.createComputePipelineAsync({ label, layout, compute: { module, entryPoint: "main" } });
    } catch (error) {
        faults.push(error.message);
    }
    return faults;
}

const layouts = new Map();

// The layout of a kernel with so many bindings of each kind, and its parameters in a uniform buffer.
function layoutOf(device, reads, writes) {
    const key = `${reads}+${writes}`;
    if (!layouts.has(key)) {
        const entry = (binding, buffer) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer });
        const storage = Array.from({ length: reads + writes }, (_, binding) =>
            entry(binding, { type: binding < reads ? "read-only-storage" : "storage" }),
        );
        const groups = [storage, [entry(0, { type: "uniform", hasDynamicOffset: true })]];
        const bindGroupLayouts = groups.map(entries => device.createBindGroupLayout({ entries }));
        layouts.set(key, device.createPipelineLayout({ bindGroupLayouts }));
    }
    return layouts.get(key);
}
