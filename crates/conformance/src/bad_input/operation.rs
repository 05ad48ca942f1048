//! An operation, a call of it that succeeds, and the tabled ways to break that call.

use std::fmt;

use backend_api::{BackendResult, ComputeBackend, DType};

use super::{Expect, Handles};

/// How a call touches an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read; the output may not touch it.
    Input,
    /// Read; the output may be exactly it, if it has the output's size.
    InPlaceInput,
    /// Written.
    Output,
}

/// An operand of the good call: exactly the memory that the call names.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The argument's name.
    pub arg: &'static str,
    /// How the call touches it.
    pub role: Role,
    /// Alignment of the elements in bytes; 1 for plain bytes.
    pub align: usize,
    /// What it holds before the call.
    pub content: Vec<u8>,
    pub(super) dtype: DType,
}

impl Slot {
    /// `elements` elements: ones if read, a byte pattern that is NaN as a float if written.
    pub(super) fn new(arg: &'static str, role: Role, dtype: DType, elements: usize) -> Self {
        let content = match role {
            Role::Output => vec![0xff; elements * dtype.size()],
            Role::Input | Role::InPlaceInput => encode(dtype, 1.0).repeat(elements),
        };
        Self { arg, role, align: dtype.size(), content, dtype }
    }

    /// Sets every element to `value`.
    pub(super) fn holding(mut self, value: f32) -> Self {
        let elements = self.content.len() / self.dtype.size();
        self.content = encode(self.dtype, value).repeat(elements);
        self
    }

    /// Takes the operand for plain bytes, which can't be misaligned.
    pub(super) fn unaligned(self) -> Self {
        Self { align: 1, ..self }
    }
}

/// `value` as one element.
pub(super) fn encode(dtype: DType, value: f32) -> Vec<u8> {
    match dtype {
        DType::F16 => half::f16::from_f32(value).to_le_bytes().to_vec(),
        DType::I32 => (value as i32).to_le_bytes().to_vec(),
        DType::U32 => (value as u32).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}

/// The elements of `bytes` as f32.
pub(super) fn decode(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(dtype.size())
        .map(|element| match *element {
            [a, b] => half::f16::from_le_bytes([a, b]).to_f32(),
            [a, b, c, d] => match dtype {
                DType::I32 => i32::from_le_bytes([a, b, c, d]) as f32,
                DType::U32 => u32::from_le_bytes([a, b, c, d]) as f32,
                _ => f32::from_le_bytes([a, b, c, d]),
            },
            _ => f32::NAN,
        })
        .collect()
}

type Call = Box<dyn Fn(&dyn ComputeBackend, &Handles) -> BackendResult<()> + Send + Sync>;

/// One tabled bad call.
pub struct Case {
    /// What is wrong with it.
    pub name: &'static str,
    /// The call.
    pub call: Call,
    /// What it must return.
    pub expect: Expect,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.name, self.expect)
    }
}

/// What is wrong, the error, and the change that makes good arguments bad.
pub(super) type Change<D> = (&'static str, Expect, fn(&mut D));

/// An operation with a good call and its tabled bad calls.
pub struct Operation {
    /// The method's name, as errors carry it.
    pub name: &'static str,
    /// The name and, where there are several good calls of one method, which this is.
    pub label: String,
    /// The operands in the order of the method's errors.
    pub slots: Vec<Slot>,
    /// The good call.
    pub call: Call,
    /// What every element of the output is after the good call; `None` if it writes nothing.
    pub result: Option<f32>,
    /// The tabled bad calls.
    pub cases: Vec<Case>,
    /// Whether the slots are the operands of the call, so that spoiling one must make it fail.
    pub(super) spoilable: bool,
    /// Whether the good call has sizes that a device may refuse as beyond its limits.
    pub(super) may_pass_limits: bool,
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("label", &self.label)
            .field("slots", &self.slots)
            .field("cases", &self.cases)
            .finish_non_exhaustive()
    }
}

impl Operation {
    pub(super) fn new(
        name: &'static str,
        slots: Vec<Slot>,
        result: impl Into<Option<f32>>,
        call: impl Fn(&dyn ComputeBackend, &Handles) -> BackendResult<()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            label: name.to_owned(),
            slots,
            call: Box::new(call),
            result: result.into(),
            cases: Vec::new(),
            spoilable: true,
            may_pass_limits: false,
        }
    }

    /// An operation whose good call has the arguments that `good` makes, and whose bad calls are each a change of them.
    pub(super) fn of<D: 'static>(
        name: &'static str,
        slots: Vec<Slot>,
        result: impl Into<Option<f32>>,
        good: impl Fn(&Handles) -> D + Copy + Send + Sync + 'static,
        call: fn(&dyn ComputeBackend, &Handles, &D) -> BackendResult<()>,
        changes: Vec<Change<D>>,
    ) -> Self {
        Self::new(name, slots, result, move |b, h| call(b, h, &good(h))).broken(good, call, changes)
    }

    /// Makes the good call on operands of the caller's, as many as there are slots.
    pub fn call_on(&self, backend: &dyn ComputeBackend, operands: Vec<u64>) -> BackendResult<()> {
        (self.call)(backend, &Handles::of(operands))
    }

    /// Whether some device may refuse the good call, for its element types or its sizes.
    #[must_use]
    pub fn may_be_refused(&self) -> bool {
        self.needs_f16() || self.may_pass_limits
    }

    /// Tells it from other good calls of the same method.
    pub(super) fn variant(mut self, variant: impl fmt::Display) -> Self {
        self.label = format!("{} {variant}", self.name);
        self
    }

    /// Adds a bad call.
    pub(super) fn bad(
        mut self,
        name: &'static str,
        expect: Expect,
        call: impl Fn(&dyn ComputeBackend, &Handles) -> BackendResult<()> + Send + Sync + 'static,
    ) -> Self {
        self.cases.push(Case { name, call: Box::new(call), expect });
        self
    }

    /// Adds bad calls that are each a change of the good call's arguments.
    pub(super) fn broken<D: 'static>(
        mut self,
        good: impl Fn(&Handles) -> D + Copy + Send + Sync + 'static,
        call: fn(&dyn ComputeBackend, &Handles, &D) -> BackendResult<()>,
        changes: Vec<Change<D>>,
    ) -> Self {
        self.cases.extend(changes.into_iter().map(|(name, expect, change)| Case {
            name,
            expect,
            call: Box::new(move |b, h| {
                let mut arguments = good(h);
                change(&mut arguments);
                call(b, h, &arguments)
            }),
        }));
        self
    }

    pub(super) fn needs_f16(&self) -> bool {
        self.slots.iter().any(|slot| slot.dtype == DType::F16)
    }
}
