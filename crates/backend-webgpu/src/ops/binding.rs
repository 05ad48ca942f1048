//! Launches of operands wherever they lie: what can't be bound there is copied first. The copies are launches
//! themselves, so that this is apart from `op_context.rs`, which their files import.

use backend_api::{BackendResult, DType};
use bytemuck::Pod;

use super::copy_bytes::copy_bytes;
use super::gathered::Gathered;
use super::op_context::{Dispatch, OpContext};
use crate::device::MAX_BINDINGS;
use crate::kernels::{MAX_PARAMS, Variant};
use crate::memory::DeviceSlice;
use crate::recorder::Window;

impl OpContext {
    /// What a kernel sees of an input. One that lies in the output's buffer is copied first: a buffer can't
    /// be read through one binding and written through another.
    pub(crate) fn input(
        &self,
        op: &'static str,
        slice: &DeviceSlice,
        dtype: DType,
        output: &Window,
    ) -> BackendResult<Window> {
        let window = Window::new(slice, dtype, self.device.limits);
        if !window.shares_buffer(output) {
            return Ok(window);
        }
        Ok(Window::new(&self.copied(op, slice)?, dtype, self.device.limits))
    }

    /// A copy of an operand in whole words.
    pub(crate) fn copied(&self, op: &'static str, slice: &DeviceSlice) -> BackendResult<DeviceSlice> {
        let scratch = self.scratch(op, slice.len.next_multiple_of(4))?;
        copy_bytes(self, op, &scratch, slice, slice.len)?;
        Ok(scratch)
    }

    /// [`input`](Self::input) of an operand that may be left out.
    pub(crate) fn optional_input(
        &self,
        op: &'static str,
        slice: Option<&DeviceSlice>,
        dtype: DType,
        output: &Window,
    ) -> BackendResult<Window> {
        match slice {
            Some(slice) => self.input(op, slice, dtype, output),
            None => Ok(self.null()),
        }
    }

    /// [`input`](Self::input) of a kernel that reads its output where that is exactly the input, and binds nothing else
    /// then; and whether it does.
    pub(crate) fn input_or_output(
        &self,
        op: &'static str,
        dtype: DType,
        input: &DeviceSlice,
        (slice, output): (&DeviceSlice, &Window),
    ) -> BackendResult<(Window, bool)> {
        let in_place = input.region() == slice.region();
        let window = if in_place { self.null() } else { self.input(op, input, dtype, output)? };
        Ok((window, in_place))
    }

    /// Records one dispatch: the read-only windows in the order of the kernel's bindings, then the output.
    pub(crate) fn launch<P: Pod>(
        &self,
        op: &'static str,
        variant: &Variant,
        reads: &[&Window],
        output: &Window,
        params: &P,
        grid: [u32; 3],
    ) -> BackendResult<()> {
        const { assert!(size_of::<P>() <= MAX_PARAMS as usize, "the parameters don't fit in the immediates") };
        debug_assert!(reads.len() < MAX_BINDINGS, "{variant:?}");
        let windows = reads.iter().copied().chain([output]);
        windows
            .clone()
            .try_for_each(|window| window.require_bindable(op).inspect_err(|_| self.note_refused(window)))?;
        let params = bytemuck::bytes_of(params);
        if !windows.clone().any(|window| window.block.is_divided()) {
            return self.launch_bound(Dispatch { op, variant, windows, params, grid });
        }
        let _part = self.begin_part();
        let gathered = Gathered::new(self, op, variant.source.reads.len(), windows)?;
        self.launch_bound(Dispatch { op, variant, windows: gathered.windows.iter(), params, grid })?;
        gathered.write_back(self, op)
    }
}
