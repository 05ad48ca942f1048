//! One call and everything that is known about its operands before and after.

use std::fmt;

use backend_api::{BackendResult, ComputeBackend, DType};

use crate::want::Want;

/// Makes the call on the given handles, which are in the order in which the operands were added.
type Call = Box<dyn Fn(&dyn ComputeBackend, &[u64]) -> BackendResult<()>>;

/// One call: its operands and what must become of them.
pub(crate) struct Trial {
    pub(crate) operands: Vec<Operand>,
    /// Whether the call makes numbers of f16 between its operands.
    pub(crate) rounds_to_f16: bool,
    call: Call,
}

/// One operand, which the runner places in an allocation of its own between guard bytes.
///
/// Numbers are held as f64, which has room for every element type. NaN stands for the fill pattern of
/// outputs.
pub(crate) struct Operand {
    /// The argument's name.
    pub(crate) arg: &'static str,
    pub(crate) dtype: DType,
    /// Bytes to a multiple of which it may be placed.
    pub(crate) align: usize,
    /// The elements before the call.
    pub(crate) before: Vec<f64>,
    /// What some elements must be afterwards. Those without stay as they are, to the bit.
    pub(crate) after: Vec<Option<Want>>,
    /// The largest normalised mean square error over all elements.
    pub(crate) nmse: f64,
}

impl Trial {
    pub(crate) fn new() -> Self {
        Self { operands: Vec::new(), rounds_to_f16: false, call: Box::new(|_, _| Ok(())) }
    }

    /// Adds an operand that must stay as it is.
    pub(crate) fn input(&mut self, arg: &'static str, dtype: DType, values: &[f64]) {
        self.operands.push(Operand {
            arg,
            dtype,
            align: dtype.size(),
            before: values.to_vec(),
            after: Vec::new(),
            nmse: f64::INFINITY,
        });
    }

    /// Adds a quantised matrix, as the words of its planes.
    pub(crate) fn planes(&mut self, arg: &'static str, words: &[f64]) {
        self.input(arg, DType::U32, words);
        if let Some(operand) = self.operands.last_mut() {
            operand.align = 16;
        }
    }

    /// Adds a packed output.
    pub(crate) fn output(&mut self, arg: &'static str, dtype: DType, wants: Vec<Want>) {
        let before = vec![f64::NAN; wants.len()];
        self.in_place(arg, dtype, before, wants);
    }

    /// Adds a packed output that already has values, such as an input that is overwritten.
    pub(crate) fn in_place(&mut self, arg: &'static str, dtype: DType, before: Vec<f64>, wants: Vec<Want>) {
        let places = wants.into_iter().enumerate().collect();
        self.scattered(arg, dtype, before, places);
    }

    /// Adds a packed input, and an output or what is to become of the input itself.
    pub(crate) fn in_and_out(&mut self, in_place: bool, dtype: DType, input: Vec<f64>, wants: Vec<Want>) {
        if in_place {
            self.in_place("x", dtype, input, wants);
        } else {
            self.input("input", dtype, &input);
            self.output("output", dtype, wants);
        }
    }

    /// Adds an output of which only the listed elements are written.
    pub(crate) fn scattered(
        &mut self,
        arg: &'static str,
        dtype: DType,
        before: Vec<f64>,
        places: Vec<(usize, Want)>,
    ) {
        let mut after = vec![None; before.len()];
        for (index, want) in places {
            after[index] = Some(want);
        }
        let align = dtype.size();
        self.operands.push(Operand { arg, dtype, align, before, after, nmse: f64::INFINITY });
    }

    /// Bounds the normalised mean square error of the last operand: 1e-10 for f32 and, because of its own
    /// rounding, 1e-6 for f16. For results that don't cancel as a whole, as a handful may by chance.
    pub(crate) fn with_nmse(&mut self) {
        let is_large = |operand: &&mut Operand| operand.after.iter().flatten().count() >= 16;
        if let Some(operand) = self.operands.last_mut().filter(is_large) {
            operand.nmse = if operand.dtype == DType::F16 { 1e-6 } else { 1e-10 };
        }
    }

    /// The call that is tested.
    pub(crate) fn calling(
        mut self,
        call: impl Fn(&dyn ComputeBackend, &[u64]) -> BackendResult<()> + 'static,
    ) -> Self {
        self.call = Box::new(call);
        self
    }

    pub(crate) fn call(&self, backend: &dyn ComputeBackend, handles: &[u64]) -> BackendResult<()> {
        (self.call)(backend, handles)
    }

    /// Whether the call needs a device that can compute with f16.
    pub(crate) fn uses_f16(&self) -> bool {
        self.rounds_to_f16 || self.operands.iter().any(|operand| operand.dtype == DType::F16)
    }

    /// Whether the call has nothing to do.
    pub(crate) fn writes_nothing(&self) -> bool {
        self.operands.iter().flat_map(|operand| &operand.after).all(Option::is_none)
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args = self.operands.iter().map(|operand| operand.arg);
        f.debug_list().entries(args).finish()
    }
}
