//! Captured calls: run as a graph, and once more call by call.

use std::collections::HashMap;
use std::sync::Arc;

use backend_api::support::{Access, Calls};
use backend_api::{
    BackendError, BackendResult, Capabilities, Command, ComputeBackend, DeviceInfo, MemoryStats, forward,
};
use parking_lot::Mutex;

use crate::VerifyBackend;
use crate::mirror::{Mirror, Twin};

/// A graph of the first backend, and what its calls are.
#[derive(Debug)]
pub(crate) struct Graph {
    calls: Calls,
    /// For each handle of the calls one that lives as long as the graph, in the first backend.
    held: HashMap<u64, u64>,
    /// How many bytes of these handles' memory the calls may write.
    written: HashMap<u64, usize>,
}

/// Stands before the backend that records, and holds the memory of what passes its checks.
#[derive(Debug)]
struct Noted<'a> {
    recorder: &'a dyn ComputeBackend,
    notes: &'a Taken<'a>,
}

#[derive(Debug, Default)]
struct Notes {
    held: HashMap<u64, u64>,
    written: HashMap<u64, usize>,
}

/// Notes of a capture. What they hold is let go on drop, as after a panic in the capture.
#[derive(Debug)]
struct Taken<'a> {
    verify: &'a VerifyBackend,
    notes: Mutex<Notes>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let Notes { held, .. } = std::mem::take(self.notes.get_mut());
        // Fails only where the memory is gone already, such as with a lost device.
        _ = self.verify.let_go(&mut self.verify.mirror.lock(), &held);
    }
}

impl Noted<'_> {
    const fn verify(&self) -> &VerifyBackend {
        self.notes.verify
    }

    /// Handles of the graph's own to what a command touches.
    fn hold(&self, op: &'static str, command: &Command<'_>) -> BackendResult<()> {
        let mut notes = self.notes.notes.lock();
        let mut mirror = self.verify().mirror.lock();
        for operand in command.operands(op)?.iter().filter(|operand| operand.bytes > 0) {
            let Some(&Twin { ptr: twin, len }) = mirror.twins.get(&operand.ptr) else { continue };
            let own = match notes.held.get(&operand.ptr) {
                Some(&own) => own,
                None => {
                    let own = self.verify().first.view(operand.ptr, 0, len)?;
                    let twin = match self.verify().second.view(twin, 0, len) {
                        Ok(twin) => twin,
                        Err(error) => {
                            self.verify().first.free(own)?;
                            return Err(error);
                        }
                    };
                    mirror.twins.insert(own, Twin { ptr: twin, len });
                    mirror.held += 1;
                    notes.held.insert(operand.ptr, own);
                    own
                }
            };
            if operand.access == Access::Write {
                let extent = notes.written.entry(own).or_insert(0);
                *extent = (operand.offset + operand.bytes).max(*extent);
            }
        }
        Ok(())
    }
}

impl ComputeBackend for Noted<'_> {
    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        self.recorder.execute(op, command)?;
        self.hold(op, &command)
    }

    fn name(&self) -> &str {
        self.verify().name()
    }

    fn capabilities(&self) -> BackendResult<Capabilities> {
        self.verify().capabilities()
    }

    fn device_info(&self) -> BackendResult<DeviceInfo> {
        self.verify().device_info()
    }

    fn memory_stats(&self) -> MemoryStats {
        self.verify().memory_stats()
    }

    forward!(this => *this.recorder; is_initialized, synchronize, alloc, alloc_zeroed, free, copy_htod, copy_dtoh);

    fn init(&mut self) -> BackendResult<()> {
        Err(BackendError::Capturing { op: "init" })
    }
}

/// Makes the calls of a graph one by one, on the handles that it holds.
#[derive(Debug)]
struct Stepper<'a> {
    verify: &'a VerifyBackend,
    mirror: Mutex<&'a mut Mirror>,
    held: &'a HashMap<u64, u64>,
}

impl ComputeBackend for Stepper<'_> {
    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        let own = |ptr| self.held.get(&ptr).copied().unwrap_or(ptr);
        command.with_handles(&mut { own }, |command| self.verify.step(&mut self.mirror.lock(), op, command))
    }

    forward!(this => *this.verify.first; name, is_initialized, synchronize, alloc, free, copy_htod, copy_dtoh);
    forward!(this => *this.verify.first; capabilities, device_info);

    fn init(&mut self) -> BackendResult<()> {
        Ok(())
    }
}

impl VerifyBackend {
    pub(crate) fn capture_graph(
        &self,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<u64> {
        let (notes, mut calls) = (Taken { verify: self, notes: Mutex::default() }, Calls::default());
        let captured = self.first.capture(&mut |recorder| {
            let noted = Noted { recorder, notes: &notes };
            calls = Calls::record(&noted, record)?;
            Ok(())
        });
        let graph = captured?;
        let Notes { held, written } = std::mem::take(&mut *notes.notes.lock());
        self.mirror.lock().graphs.insert(graph, Arc::new(Graph { calls, held, written }));
        Ok(graph)
    }

    pub(crate) fn replay_graph(&self, graph: u64) -> BackendResult<()> {
        let mut mirror = self.in_step()?;
        // It stays in the table: a panic on the way mustn't lose it.
        match mirror.graphs.get(&graph).cloned() {
            Some(twin) => self.replay_and_step(&mut mirror, graph, &twin),
            None => self.first.replay(graph),
        }
    }

    /// Replays a graph, and then makes its calls from the same memory. The first backend is left as by the
    /// replay.
    fn replay_and_step(
        &self,
        mirror: &mut Mirror,
        graph: u64,
        Graph { calls, held, written }: &Graph,
    ) -> BackendResult<()> {
        let before = Mirror::read(&*self.second, written, |ptr| mirror.twin(ptr))?;
        self.first.replay(graph)?;
        mirror.is_out_of_step = true;
        let replayed = Mirror::read(&*self.first, written, |ptr| ptr)?;
        for &ptr in written.keys() {
            self.first.copy_htod(ptr, before.get(ptr))?;
        }
        mirror.is_out_of_step = false;
        let stepped =
            calls.replay(&Stepper { verify: self, mirror: Mutex::new(mirror), held }).and_then(|()| {
                let stepped = Mirror::read(&*self.first, written, |ptr| ptr)?;
                written.keys().try_for_each(|&ptr| {
                    let call = || format!("the graph {graph:#x}, beside its calls one by one");
                    self.compare_reads("replay", call, [replayed.get(ptr), stepped.get(ptr)])
                })
            });
        if stepped.is_err() {
            for &ptr in written.keys() {
                self.first.copy_htod(ptr, replayed.get(ptr))?;
            }
            mirror.is_out_of_step = true;
        }
        stepped
    }

    pub(crate) fn release_graph(&self, graph: u64) -> BackendResult<()> {
        let mut mirror = self.mirror.lock();
        self.first.free_graph(graph)?;
        match mirror.graphs.remove(&graph) {
            Some(graph) => self.let_go(&mut mirror, &graph.held),
            None => Ok(()),
        }
    }

    /// Frees the handles of a graph.
    fn let_go(&self, mirror: &mut Mirror, held: &HashMap<u64, u64>) -> BackendResult<()> {
        for own in held.values() {
            if let Some(twin) = mirror.twins.remove(own) {
                mirror.held -= 1;
                self.first.free(*own)?;
                self.second.free(twin.ptr)?;
            }
        }
        Ok(())
    }
}
