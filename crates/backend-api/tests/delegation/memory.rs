//! A backend whose memory is the process's, and whose operations only leave a note, but for fills with 0.

use std::sync::{Arc, Mutex, MutexGuard};

use backend_api::support::{Calls, GraphTable, HandleTable, Slice};
use backend_api::*;

/// What new memory holds, so that bytes which nobody wrote can be told.
pub(crate) const FRESH: u8 = 0xA5;

#[derive(Debug, Default)]
struct State {
    memory: HandleTable<Mutex<Vec<u8>>>,
    graphs: GraphTable<Calls>,
    notes: Vec<String>,
}

/// See the module; closed until `init`.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    state: Mutex<State>,
    open: bool,
    /// The name of the call that fails, if one does.
    refused: &'static str,
}

/// How an operation under a name is noted.
pub(crate) fn note(op: &str, command: Command<'_>) -> String {
    format!("{op}: {command:?}")
}

impl Memory {
    pub(crate) fn opened() -> Self {
        Self { open: true, ..Self::default() }
    }

    /// Has calls of this name fail.
    pub(crate) fn refusing(self, refused: &'static str) -> Self {
        Self { refused, ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn check(&self, op: &'static str) -> BackendResult<()> {
        if self.refused == op { Err(self.unsupported(op)) } else { Ok(()) }
    }

    /// The operations since the last call of this.
    pub(crate) fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().notes)
    }

    /// Live handles of memory, and of graphs.
    pub(crate) fn live(&self) -> [usize; 2] {
        let state = self.state();
        [state.memory.len(), state.graphs.len()]
    }

    fn part(&self, op: &'static str, ptr: u64, len: usize) -> BackendResult<Slice<Mutex<Vec<u8>>>> {
        let slice = self.state().memory.lookup(op, "ptr", ptr)?.clone();
        if len > slice.len {
            return Err(BackendError::BufferTooSmall { op, arg: "ptr", have: slice.len, need: len });
        }
        Ok(Slice { len, ..slice })
    }
}

impl ComputeBackend for Memory {
    fn name(&self) -> &str {
        "memory"
    }
    fn init(&mut self) -> BackendResult<()> {
        self.check("init")?;
        self.open = true;
        Ok(())
    }
    fn is_initialized(&self) -> bool {
        self.open
    }
    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        self.check(op)?;
        if let Command::Fill { dst, dtype, n, value: 0.0 } = command {
            let Slice { block, offset, len } = self.part(op, dst, n * dtype.size())?;
            block.lock().unwrap()[offset..offset + len].fill(0);
        }
        self.state().notes.push(note(op, command));
        Ok(())
    }
    fn synchronize(&self) -> BackendResult<()> {
        self.check("synchronize")
    }
    fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        self.check("alloc")?;
        let block = Arc::new(Mutex::new(vec![FRESH; bytes]));
        self.state().memory.insert("alloc", Slice { block, offset: 0, len: bytes })
    }
    fn free(&self, ptr: u64) -> BackendResult<()> {
        self.state().memory.remove("free", "ptr", ptr).map(drop)
    }
    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        self.state().memory.view(ptr, byte_offset, byte_len)
    }
    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()> {
        self.check("copy_htod")?;
        let Slice { block, offset, len } = self.part("copy_htod", dst, src.len())?;
        block.lock().unwrap()[offset..offset + len].copy_from_slice(src);
        Ok(())
    }
    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        let Slice { block, offset, len } = self.part("copy_dtoh", src, dst.len())?;
        dst.copy_from_slice(&block.lock().unwrap()[offset..offset + len]);
        Ok(())
    }
    fn capture(
        &self,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<u64> {
        let calls = Calls::record(self, record)?;
        self.notes();
        self.state().graphs.insert(calls)
    }
    fn replay(&self, graph: u64) -> BackendResult<()> {
        let graph = self.state().graphs.get("replay", graph)?;
        graph.replay(self)
    }
    fn free_graph(&self, graph: u64) -> BackendResult<()> {
        self.state().graphs.remove("free_graph", graph).map(drop)
    }
    fn capabilities(&self) -> BackendResult<Capabilities> {
        Ok(Capabilities::host())
    }
    fn device_info(&self) -> BackendResult<DeviceInfo> {
        Err(self.unsupported("device_info"))
    }
    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }
}
