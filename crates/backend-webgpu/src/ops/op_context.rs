//! What a launcher works with: the opened device, what was found out about it, and where its launches go.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backend_api::support::Operand;
use backend_api::{BackendError, BackendResult, DType, ErrorKind};

use super::capture::{Capture, CapturedCall, Made, Replaced};
use super::scratch::{Part, Scratch};
use super::state::State;
use crate::context::{Context, FIXUP_WORDS, MAX_GROUPS};
use crate::device::{DeviceProfile, Gpu};
use crate::kernels::Variant;
use crate::memory::DeviceSlice;
use crate::recorder::{Command, Waits, Window};
use crate::sync::Mutex;

/// The context of one call.
///
/// A call's dispatches are collected here, and recorded together when all of it has been checked and planned:
/// a call that fails has recorded none, and no other thread's come in between.
#[derive(Debug)]
pub(crate) struct OpContext {
    pub(crate) device: Arc<Context>,
    pub(crate) state: Arc<State>,
    mode: Mode,
    waits: Waits,
    scratch: Scratch,
    /// What a launch couldn't bind.
    refused: Mutex<Option<Window>>,
}

/// A variant to be dispatched, and on what: the windows in the order of its bindings.
pub(super) struct Dispatch<'a, W> {
    pub(super) op: &'static str,
    pub(super) variant: &'a Variant,
    pub(super) windows: W,
    pub(super) params: &'a [u8],
    pub(super) grid: [u32; 3],
}

/// A dispatch that a dry run notes.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) variant: Variant,
    #[cfg(test)]
    pub(crate) grid: [u32; 3],
    #[cfg(test)]
    pub(crate) params: Vec<u8>,
    /// Of each binding that shows a part of a buffer: its number, first byte and bytes.
    #[cfg(test)]
    pub(crate) bound: Vec<[u64; 3]>,
    /// What was asked for since the launch before: bytes of memory of its own, and the bits of expected seconds.
    #[cfg(test)]
    pub(crate) asked: Vec<u64>,
}

/// What becomes of a dispatch.
#[derive(Debug)]
enum Mode {
    /// It is recorded when the call is over.
    Record(Mutex<Vec<Command>>),
    /// It is kept for a graph when the call is over.
    Capture(CapturedCall),
    /// A dry run only notes which kernel was asked for.
    DryRun(Arc<DryRun>),
}

/// What a dry run notes.
#[derive(Debug, Default)]
struct DryRun {
    launches: Mutex<Vec<Launch>>,
    #[cfg(test)]
    asked: Mutex<Vec<u64>>,
    /// What the last of them makes, if the next call may go on with it.
    made: Mutex<Option<Made>>,
    /// Whether variants of which nothing is known are taken for right, and the self-tests of those that were.
    untested: Option<Mutex<HashMap<Variant, Trial>>>,
}

/// The self-test of a variant, to be made later and elsewhere.
pub(crate) struct Trial(Box<Check>);

type Check = dyn FnOnce(&OpContext) -> BackendResult<()> + Send;

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trial")
    }
}

impl OpContext {
    /// A call that records.
    pub(crate) fn new(device: Context, state: State) -> Self {
        let mode = Mode::Record(Mutex::default());
        Self::of(Arc::new(device), Arc::new(state), mode)
    }

    /// On this device, a context in which operations are checked and planned but launch nothing.
    pub(crate) fn dry_run(&self) -> Self {
        self.with_mode(Mode::DryRun(Arc::default()))
    }

    /// A [dry run](Self::dry_run) in which variants that have not been tested on this device are taken for right.
    pub(crate) fn untested_dry_run(&self) -> Self {
        let untested = Some(Mutex::default());
        self.with_mode(Mode::DryRun(Arc::new(DryRun { untested, ..DryRun::default() })))
    }

    /// On this device, a context in which operations are checked, planned, and kept in `capture`.
    pub(crate) fn capturing(&self, capture: &Arc<Capture>) -> Self {
        self.with_mode(Mode::Capture(CapturedCall::new(capture)))
    }

    /// # Errors
    /// [`Capturing`](BackendError::Capturing) in a capture.
    pub(crate) fn require_no_capture(&self, op: &'static str) -> BackendResult<()> {
        if let Mode::Capture(_) = self.mode { Err(BackendError::Capturing { op }) } else { Ok(()) }
    }

    /// The context of the next call.
    pub(crate) fn call(&self) -> Self {
        self.with_mode(match &self.mode {
            Mode::Capture(call) => Mode::Capture(call.next()),
            Mode::Record(_) => Mode::Record(Mutex::default()),
            Mode::DryRun(run) => Mode::DryRun(Arc::clone(run)),
        })
    }

    /// The context of a call that a dry run makes too: an allocation or a transfer.
    pub(crate) fn for_transfers(&self) -> Self {
        match self.mode {
            Mode::DryRun(_) => self.with_mode(Mode::Record(Mutex::default())),
            _ => self.call(),
        }
    }

    fn of(device: Arc<Context>, state: Arc<State>, mode: Mode) -> Self {
        Self {
            device,
            state,
            mode,
            waits: Waits::default(),
            scratch: Scratch::default(),
            refused: Mutex::default(),
        }
    }

    fn with_mode(&self, mode: Mode) -> Self {
        Self::of(Arc::clone(&self.device), Arc::clone(&self.state), mode)
    }

    /// The time that this call has waited.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    /// The time that this call may still wait.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout) if there is none.
    pub(in crate::ops) fn time_left(&self, op: &'static str) -> BackendResult<Duration> {
        self.waits.remaining(op, self.device.timeout())
    }

    /// The kernels that dry runs asked for since the last call.
    pub(crate) fn take_variants(&self) -> Vec<Variant> {
        self.take_launches().into_iter().map(|launch| launch.variant).collect()
    }

    /// The launches of dry runs since the last call.
    pub(crate) fn take_launches(&self) -> Vec<Launch> {
        match &self.mode {
            Mode::Record(_) | Mode::Capture(_) => Vec::new(),
            Mode::DryRun(run) => {
                #[cfg(test)]
                run.asked.lock().clear();
                std::mem::take(&mut *run.launches.lock())
            }
        }
    }

    /// The variants that an [untested dry run](Self::untested_dry_run) has taken for right, with their self-tests.
    pub(crate) fn take_untested(&self) -> HashMap<Variant, Trial> {
        self.untested().map(|untested| std::mem::take(&mut *untested.lock())).unwrap_or_default()
    }

    /// Whether variants of which nothing is known are taken for right.
    pub(in crate::ops) fn takes_untested(&self) -> bool {
        self.untested().is_some()
    }

    fn untested(&self) -> Option<&Mutex<HashMap<Variant, Trial>>> {
        match &self.mode {
            Mode::DryRun(run) => run.untested.as_ref(),
            Mode::Record(_) | Mode::Capture(_) => None,
        }
    }

    /// Whether a variant on cooperative matrices gives right results on this device; found out by `check` at its
    /// first use.
    pub(in crate::ops) fn is_right(
        &self,
        variant: &Variant,
        check: impl FnOnce(&Self) -> BackendResult<()> + Send + 'static,
    ) -> bool {
        let tests = &self.state.self_tests;
        match self.untested() {
            Some(untested) if tests.is_open(variant) => {
                untested.lock().entry(*variant).or_insert_with(|| Trial(Box::new(check)));
                true
            }
            // A test without the time for it would end without a result.
            _ if tests.is_open(variant) && self.time_left("self-test").is_err() => false,
            _ => tests.pass(variant, || check(self)),
        }
    }

    /// Makes the self-test of a variant, unless one has told by now whether it is right; whether that is known then.
    pub(crate) fn try_variant(&self, variant: &Variant, trial: Trial) -> bool {
        self.is_right(variant, trial.0) || !self.state.self_tests.is_open(variant)
    }

    /// Records what was launched since the last commit, all of it or nothing.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout), [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn commit(&self, op: &'static str) -> BackendResult<()> {
        self.scratch.clear();
        match &self.mode {
            Mode::Record(commands) => {
                let commands = std::mem::take(&mut *commands.lock());
                let recorded = self.device.record(op, &commands, &self.waits);
                recorded.inspect_err(|_| self.state.pace.give_back(&commands))
            }
            Mode::Capture(call) => {
                call.commit();
                Ok(())
            }
            Mode::DryRun(_) => Ok(()),
        }
    }

    /// Forgets what a call that has failed launched.
    pub(crate) fn discard(&self) {
        self.scratch.clear();
        if let Mode::Record(commands) = &self.mode {
            self.state.pace.give_back(&std::mem::take(&mut *commands.lock()));
        }
    }

    /// Has the next call of a capture, or of a dry run, find what the last command of this one makes. In a page nothing is noted, as
    /// it has no kernels for several calls, nor needs the code.
    pub(in crate::ops) fn note_made(&self, made: impl FnOnce() -> Option<Made>) {
        if cfg!(target_family = "wasm") {
            return;
        }
        match &self.mode {
            Mode::Record(_) => {}
            Mode::Capture(call) => made().into_iter().for_each(|made| call.note_made(made)),
            Mode::DryRun(run) => *run.made.lock() = made(),
        }
    }

    /// What the last command makes, if it was noted.
    pub(in crate::ops) fn made_before(&self) -> Option<Made> {
        match &self.mode {
            _ if cfg!(target_family = "wasm") => None,
            Mode::Record(_) => None,
            Mode::Capture(call) => call.made_before(),
            Mode::DryRun(run) => run.made.lock().clone(),
        }
    }

    /// Puts a launch in the place of the last ones, of which the last `made` something; whether it is there: not where a result
    /// shares a buffer with another operand, the device can't bind all of them, its kernel doesn't compile, or another thread has
    /// captured meanwhile, nor in a dry run, in which both ways are noted.
    pub(in crate::ops) fn replace<'a>(
        &self,
        op: &'static str,
        (made, replaced): (&Made, Replaced),
        variant: &'a Variant,
        windows: impl Iterator<Item = &'a Window> + Clone,
        params: &'a [u8],
        grid: [u32; 3],
    ) -> BackendResult<bool> {
        let reads = variant.source.reads.len();
        let are_apart = windows
            .clone()
            .enumerate()
            .skip(reads)
            .all(|(at, written)| windows.clone().take(at).all(|other| !written.shares_buffer(other)));
        let are_bindable = windows.clone().all(|window| !window.block.is_divided() && window.is_bindable());
        if !(are_apart && are_bindable && self.has_bindings(windows.clone().count())) {
            return Ok(false);
        }
        let dispatch = Dispatch { op, variant, windows, params, grid };
        match &self.mode {
            Mode::Record(_) => Ok(false),
            Mode::Capture(call) => match self.command(dispatch) {
                Ok(command) => Ok(call.replace(made, replaced, command)),
                // Each launch may compile by itself.
                Err(error) if error.kind() == ErrorKind::Kernel => {
                    tracing::warn!("{op}: {error}; it takes a launch of its own");
                    Ok(false)
                }
                Err(error) => Err(error),
            },
            Mode::DryRun(_) => self.launch_bound(dispatch).map(|()| false),
        }
    }

    /// Records the commands of a graph.
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle), [`Timeout`](BackendError::Timeout),
    /// [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn replay(&self, op: &'static str, graph: u64) -> BackendResult<()> {
        if let Mode::DryRun(_) = self.mode {
            return self.device.require_graph(op, graph);
        }
        let pace = &self.state.pace;
        self.device.replay(op, graph, &self.waits, &mut |seconds| {
            pace.add(seconds);
            pace.take_due()
        })
    }

    /// Notes what a launch of this call couldn't bind.
    pub(super) fn note_refused(&self, window: &Window) {
        *self.refused.lock() = Some(window.clone());
    }

    /// What a launch of this call couldn't bind.
    pub(super) fn take_refused(&self) -> Option<Window> {
        self.refused.lock().take()
    }

    /// The device, as planners see it.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.device.gpu
    }

    /// The device's size and speed. Compute units that its driver doesn't tell are the tuning's, if it has them.
    pub(crate) fn profile(&self) -> DeviceProfile {
        self.device.gpu.profile.or_tuned(self.state.tuned_compute_units())
    }

    /// Checks the operands of a call and returns their memory.
    pub(crate) fn resolve<const N: usize>(
        &self,
        op: &'static str,
        operands: &[Operand; N],
    ) -> BackendResult<[Option<DeviceSlice>; N]> {
        self.device.memory.resolve(op, operands)
    }

    /// Memory for one operation's own use, given back when the call is recorded, or with the graph of a
    /// capture.
    pub(crate) fn scratch(&self, op: &'static str, bytes: usize) -> BackendResult<DeviceSlice> {
        let allocate = || self.device.scratch(op, bytes, &self.waits);
        if let Mode::DryRun(_run) = &self.mode {
            #[cfg(test)]
            _run.asked.lock().push(bytes as u64);
            return allocate();
        }
        if let Some(slice) = self.scratch.reuse(bytes) {
            return Ok(slice);
        }
        let slice = match &self.mode {
            Mode::Capture(call) => call.scratch(bytes, allocate)?,
            _ => allocate()?,
        };
        self.scratch.note(&slice);
        Ok(slice)
    }

    /// Begins a part of a call, until this is dropped: what scratch memory the part takes, later parts may take again.
    /// Nothing of the part may keep it.
    pub(in crate::ops) fn begin_part(&self) -> Part<'_> {
        self.scratch.begin_part()
    }

    /// Memory that a handle names; its content is arbitrary.
    ///
    /// # Errors
    /// [`Limit`](BackendError::Limit), [`OutOfMemory`](BackendError::OutOfMemory).
    pub(crate) fn alloc(&self, op: &'static str, bytes: usize) -> BackendResult<u64> {
        self.device.alloc(op, bytes, &self.waits)
    }

    /// Uploads to a 4-byte aligned part of a buffer, in order with what is recorded.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout), [`OutOfMemory`](BackendError::OutOfMemory): a multiple of the
    /// staging buffers' size may have been uploaded.
    pub(crate) fn upload(&self, op: &'static str, dst: &DeviceSlice, bytes: &[u8]) -> BackendResult<()> {
        self.device.upload(op, dst, bytes, &self.waits)
    }

    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) where the device has no such type.
    pub(crate) fn require_dtype(&self, op: &'static str, dtype: DType) -> BackendResult<()> {
        if dtype == DType::F16 && !self.gpu().device.features().contains(wgpu::Features::SHADER_F16) {
            return Err(BackendError::Unsupported { op, need: "a device with SHADER_F16".to_owned() });
        }
        Ok(())
    }

    /// What a kernel sees of an output.
    pub(crate) fn output(&self, slice: &DeviceSlice, dtype: DType) -> Window {
        Window::new(slice, dtype, self.device.limits)
    }

    /// A binding for an operand that a kernel doesn't touch.
    pub(crate) fn null(&self) -> Window {
        self.device.null()
    }

    /// A binding for an output that a kernel doesn't touch, which can't be bound to what is read in the same
    /// dispatch.
    pub(crate) fn sink(&self) -> Window {
        self.device.sink()
    }

    /// Whether workgroups of a launch can tell each other something, and the device can bind room for that.
    pub(crate) fn has_fixup(&self) -> bool {
        self.gpu().device_scope_barriers && self.device.limits.max_bytes >= 4 * FIXUP_WORDS as u64
    }

    /// Whether a kernel may bind so many buffers, more than every device has room for.
    pub(in crate::ops) fn has_bindings(&self, count: usize) -> bool {
        let limits = &self.gpu().limits;
        // Where accesses are counted, the counters are one more.
        let count = count + usize::from(cfg!(feature = "count-out-of-bounds"));
        // Parameters may be a buffer.
        let least = limits
            .max_storage_buffers_per_shader_stage
            .min(limits.max_bindings_per_bind_group)
            .min(limits.max_buffers_and_acceleration_structures_per_shader_stage.saturating_sub(1));
        count <= least as usize
    }

    /// A binding of [`FIXUP_WORDS`] words that is every launch's for as long as it runs.
    ///
    /// # Errors
    /// [`OutOfMemory`](BackendError::OutOfMemory).
    pub(crate) fn fixup(&self) -> BackendResult<Window> {
        self.device.fixup()
    }

    /// A dispatch of a variant, which is compiled if it wasn't before.
    fn command<'a>(
        &self,
        dispatch: Dispatch<'a, impl Iterator<Item = &'a Window>>,
    ) -> BackendResult<Command> {
        let Dispatch { op, variant, windows, params, grid } = dispatch;
        let kernel = self.device.pipeline(variant)?;
        let mut command = Command::new(op, kernel, windows.cloned(), params, grid)?;
        command.mixes_outputs = variant.source.mixes_outputs;
        Ok(command)
    }

    /// [`launch`](Self::launch) with windows that can be bound, each in one buffer.
    pub(super) fn launch_bound<'a>(
        &self,
        dispatch: Dispatch<'a, impl Iterator<Item = &'a Window>>,
    ) -> BackendResult<()> {
        let variant = dispatch.variant;
        if let Mode::DryRun(run) = &self.mode {
            *run.made.lock() = None;
            run.launches.lock().push(Launch {
                variant: *variant,
                #[cfg(test)]
                grid: dispatch.grid,
                #[cfg(test)]
                params: dispatch.params.to_vec(),
                #[cfg(test)]
                bound: (0..)
                    .zip(dispatch.windows)
                    .filter_map(|(i, window)| window.part().map(|[start, size]| [i, start, size]))
                    .collect(),
                #[cfg(test)]
                asked: std::mem::take(&mut *run.asked.lock()),
            });
            return Ok(());
        }
        let command = self.command(dispatch)?;
        debug_assert!(
            variant.source.cooperative || command.writes_are_apart(),
            "browsers, which have no cooperative matrices, refuse two bindings to write one buffer: {variant:?}"
        );
        self.launch_command(command);
        Ok(())
    }

    /// Records a dispatch, keeps it for a graph, or leaves it out of a dry run.
    pub(crate) fn launch_command(&self, mut command: Command) {
        match &self.mode {
            Mode::Record(commands) => {
                command.begins_batch = self.state.pace.take_due();
                commands.lock().push(command);
            }
            Mode::Capture(call) => call.push(command),
            Mode::DryRun(_) => {}
        }
    }

    /// Says that the launches which follow should take the device so many seconds. They begin a submission of
    /// their own if they would be too long together with what was recorded before.
    pub(crate) fn expect(&self, seconds: f64) {
        match &self.mode {
            Mode::Record(_) => self.state.pace.add(seconds),
            Mode::Capture(call) => call.expect(seconds),
            Mode::DryRun(_run) => {
                #[cfg(test)]
                _run.asked.lock().push(seconds.to_bits());
            }
        }
    }
}

/// Invocations of a workgroup, as most kernels' `@workgroup_size` has them.
pub(crate) const WORKGROUP: usize = 256;

/// The [`linear_grid`] of so many invocations, in workgroups of [`WORKGROUP`].
///
/// # Errors
/// As [`linear_grid`].
pub(crate) fn invocation_grid(op: &'static str, invocations: usize) -> BackendResult<[u32; 3]> {
    linear_grid(op, invocations.div_ceil(WORKGROUP))
}

/// The grid of `groups` workgroups in a row, folded into a second dimension where there are too many for one;
/// the kernel unfolds it with `flat_group`.
///
/// # Errors
/// [`Limit`](BackendError::Limit) past 65 535 rows of 65 535.
pub(crate) fn linear_grid(op: &'static str, groups: usize) -> BackendResult<[u32; 3]> {
    let rows = groups.div_ceil(MAX_GROUPS as usize).max(1);
    let columns = groups.div_ceil(rows);
    match (u32::try_from(columns), u32::try_from(rows)) {
        (Ok(columns), Ok(rows)) if rows <= MAX_GROUPS => Ok([columns, rows, 1]),
        _ => Err(BackendError::Limit {
            op,
            what: "workgroups",
            requested: groups,
            max: (MAX_GROUPS as usize).saturating_mul(MAX_GROUPS as usize),
        }),
    }
}

/// A size or stride as a kernel takes it.
///
/// # Errors
/// [`Limit`](BackendError::Limit) past 2³².
pub(crate) fn dim(op: &'static str, what: &'static str, value: usize) -> BackendResult<u32> {
    u32::try_from(value).map_err(|_| BackendError::Limit {
        op,
        what,
        requested: value,
        max: u32::MAX as usize,
    })
}

/// [`dim`] for sizes or strides of one kind.
///
/// # Errors
/// As [`dim`].
pub(crate) fn dims<const N: usize>(
    op: &'static str,
    what: &'static str,
    values: [usize; N],
) -> BackendResult<[u32; N]> {
    let mut sizes = [0; N];
    for (size, value) in sizes.iter_mut().zip(values) {
        *size = dim(op, what, value)?;
    }
    Ok(sizes)
}
