//! The contract: operations go to `ops`, memory and waits to the device.

use std::any::Any;

use backend_api::{
    BackendFuture, BackendResult, Capabilities, Command, ComputeBackend, DeviceInfo, MemoryStats, Operation,
};

use crate::{WebGpuBackend, context, ops};

impl ComputeBackend for WebGpuBackend {
    fn name(&self) -> &str {
        "webgpu"
    }

    fn init(&mut self) -> BackendResult<()> {
        self.open_device()
    }

    fn is_initialized(&self) -> bool {
        self.is_open()
    }

    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        self.call(op, |ctx, op| ops::execute(ctx, op, command).unwrap_or_else(|| Err(self.unsupported(op))))
    }

    fn synchronize(&self) -> BackendResult<()> {
        self.context("synchronize")?.device().synchronize("synchronize")
    }

    fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        self.context("alloc")?.context.alloc("alloc", bytes)
    }

    fn alloc_zeroed(&self, bytes: usize) -> BackendResult<u64> {
        ops::alloc_zeroed(&self.context("alloc_zeroed")?.context, bytes)
    }

    fn free(&self, ptr: u64) -> BackendResult<()> {
        self.context("free")?.device().memory.free(ptr)
    }

    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()> {
        ops::copy_htod(&self.context("copy_htod")?.context, dst, src)
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        context::copy_dtoh(self.context("copy_dtoh")?.device(), dst, src)
    }

    fn copy_dtoh_async<'a>(&'a self, dst: &'a mut [u8], src: u64) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            context::copy_dtoh_async(self.context_async("copy_dtoh_async")?.device(), dst, src).await
        })
    }

    fn synchronize_async(&self) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            self.context_async("synchronize_async")?.device().synchronize_async("synchronize_async").await
        })
    }

    fn warm_up_async<'a>(&'a self, operations: &'a [Operation<'a>]) -> BackendFuture<'a, ()> {
        Box::pin(self.warm_up(operations))
    }

    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        self.context("view")?.device().memory.view(ptr, byte_offset, byte_len)
    }

    fn capture(
        &self,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<u64> {
        self.capture_with(|backend| record(backend))
    }

    fn replay(&self, graph: u64) -> BackendResult<()> {
        self.replay_graph(graph)
    }

    fn free_graph(&self, graph: u64) -> BackendResult<()> {
        self.context("free_graph")?.device().free_graph("free_graph", graph)
    }

    fn capabilities(&self) -> BackendResult<Capabilities> {
        let call = self.begin("capabilities")?;
        let gpu = &call.device().gpu;
        let features = gpu.device.features();
        let mut capabilities = Capabilities::host();
        capabilities.f16 = features.contains(wgpu::Features::SHADER_F16);
        capabilities.subgroup_size = features.contains(wgpu::Features::SUBGROUP).then(|| {
            let info = gpu.adapter.get_info();
            (info.subgroup_min_size, info.subgroup_max_size)
        });
        capabilities.cooperative_matrix = gpu.cooperative_matrices;
        capabilities.max_alloc_bytes = call.device().memory.pool().max_alloc_bytes();
        capabilities.max_binding_bytes =
            usize::try_from(call.device().limits.max_bytes).unwrap_or(usize::MAX);
        capabilities.timestamps = features.contains(wgpu::Features::TIMESTAMP_QUERY);
        capabilities.blocking = cfg!(not(target_family = "wasm"));
        Ok(capabilities)
    }

    fn device_info(&self) -> BackendResult<DeviceInfo> {
        Self::device_info(self)
    }

    fn memory_stats(&self) -> MemoryStats {
        self.opened().map(|opened| opened.device().stats()).unwrap_or_default()
    }

    fn trim(&self) -> BackendResult<usize> {
        self.context("trim")?.device().trim()
    }

    fn set_memory_budget(&self, bytes: Option<usize>) -> BackendResult<()> {
        self.context("set_memory_budget")?.device().memory.pool().set_budget(bytes);
        Ok(())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
