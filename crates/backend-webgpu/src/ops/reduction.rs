//! The rules of shaders/reduce/reduce.wgsl: what is taken of each number, how two are joined, what is stored.

use backend_api::{BackendError, BackendResult, DType, ReduceOp};

use super::reduce::Params;
use super::shared::vec_width::VecWidth;
use crate::kernels::libs::{
    EXPONENTIALS, GRID, REDUCE_FIXUP, REDUCE_FIXUP_PAIRS, REDUCE_WHOLE, RULE_ARG, RULE_FLOAT, RULE_INTEGER,
    RULE_LOG_SUM_EXP, STATE_PAIRS, STATES_1, STATES_2, STATES_4, STATES_8, VEC_1, VEC_2, VEC_4, VEC_8,
};
use crate::kernels::{Constant as _, KernelSource, Lib, Variant, constants, kernel, numbered};

constants! { struct FloatConstants { op: Combine, map: Map, root: bool, one_loop: bool } }
constants! { struct IntegerConstants { op: Combine, map: Map, signed: bool, one_loop: bool } }
constants! { struct ArgConstants { kind: u32, smallest: bool, pairs: bool, one_loop: bool } }
constants! { struct SumConstants { pairs: bool, one_loop: bool } }

static FLOAT: Sources = Sources {
    whole: with_rule(&[GRID, RULE_FLOAT, REDUCE_WHOLE], FloatConstants::NAMES),
    fixed_up: fixed_up(&[GRID, RULE_FLOAT], FloatConstants::NAMES),
};
static INTEGER: Sources = Sources {
    whole: with_rule(&[GRID, RULE_INTEGER, REDUCE_WHOLE], IntegerConstants::NAMES),
    fixed_up: fixed_up(&[GRID, RULE_INTEGER], IntegerConstants::NAMES),
};
static ARG: Sources = Sources {
    whole: with_rule(&[GRID, RULE_ARG, REDUCE_WHOLE], ArgConstants::NAMES),
    fixed_up: fixed_up(&[GRID, RULE_ARG], ArgConstants::NAMES),
};
static LOG_SUM_EXP: Sources = Sources {
    whole: with_rule(&[GRID, EXPONENTIALS, RULE_LOG_SUM_EXP, REDUCE_WHOLE], SumConstants::NAMES),
    fixed_up: fixed_up(&[GRID, EXPONENTIALS, RULE_LOG_SUM_EXP], SumConstants::NAMES),
};

/// The kernel with a rule: alone, and with the fix-up of slices by a last workgroup.
struct Sources {
    whole: KernelSource,
    fixed_up: KernelSource,
}

impl Sources {
    const fn of(&self, results: Output) -> &KernelSource {
        if matches!(results, Output::FixedUp) { &self.fixed_up } else { &self.whole }
    }
}

/// What a launch writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Partial results of slices, which another launch reduces.
    Partial,
    /// The outputs.
    Final,
    /// The outputs, which the last workgroup of some joins from their slices (lib/last_workgroup).
    FixedUp,
}

/// The kernel with a rule, with the fix-up of slices, for which it binds one more buffer.
const fn fixed_up(libs: &'static [Lib], constants: &'static [&'static str]) -> KernelSource {
    KernelSource { writes: &["fixup", "y: Y"], ..with_rule(libs, constants) }
}

/// The file with a rule.
const fn with_rule(libs: &'static [Lib], constants: &'static [&'static str]) -> KernelSource {
    KernelSource {
        libs,
        constants,
        ..kernel!(
            "reduce/reduce", libs: [],
            types: ["T", "A", "Y"], constants: [], params: Params, reads: ["x: V"], writes: ["y: Y"],
        )
    }
}

numbered! {
    /// What invocations do with two values, as shaders/lib/reduce.wgsl numbers it.
    pub(super) enum Combine { Sum, Prod, Max, Min }
}

numbered! {
    /// What is taken of each number, as shaders/lib/maps.wgsl numbers it.
    pub(super) enum Map { Number, Absolute, Square, IsSet }
}

/// The helper files of a reduction that reads elements, by vector width, and further ones.
macro_rules! numbers {
    ($vec_width:expr $(, $lib:ident)*) => {
        match $vec_width {
            VecWidth::One => &[VEC_1, STATES_1 $(, $lib)*],
            VecWidth::Two => &[VEC_2, STATES_2 $(, $lib)*],
            VecWidth::Four => &[VEC_4, STATES_4 $(, $lib)*],
            VecWidth::Eight => &[VEC_8, STATES_8 $(, $lib)*],
        }
    };
}

/// What becomes of the elements of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// One number, perhaps of its root.
    Number(Combine, Map, bool),
    LogSumExp,
    /// The maximum and the sum that its logarithm is made of.
    Exponentials {
        /// Whether what is read are the states of an earlier launch.
        pairs: bool,
    },
    /// An index.
    Arg {
        smallest: bool,
        /// Whether what is read are the states of an earlier launch.
        pairs: bool,
    },
}

/// The rule of an operation.
pub(super) fn rule(op: &'static str, reduce: ReduceOp) -> BackendResult<Rule> {
    let number = |combine, map| Ok(Rule::Number(combine, map, false));
    match reduce {
        ReduceOp::Sum | ReduceOp::Mean => number(Combine::Sum, Map::Number),
        ReduceOp::Prod => number(Combine::Prod, Map::Number),
        ReduceOp::Max => number(Combine::Max, Map::Number),
        ReduceOp::Min => number(Combine::Min, Map::Number),
        ReduceOp::NormL1 => number(Combine::Sum, Map::Absolute),
        ReduceOp::NormL2 => Ok(Rule::Number(Combine::Sum, Map::Square, true)),
        ReduceOp::Any => number(Combine::Max, Map::IsSet),
        ReduceOp::All => number(Combine::Min, Map::IsSet),
        ReduceOp::LogSumExp => Ok(Rule::LogSumExp),
        ReduceOp::ArgMax => Ok(Rule::Arg { smallest: false, pairs: false }),
        ReduceOp::ArgMin => Ok(Rule::Arg { smallest: true, pairs: false }),
        other => Err(BackendError::Unsupported { op, need: format!("the reduction {}", other.name()) }),
    }
}

/// How a kernel reads its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) vec_width: VecWidth,
    /// Whether there is one loop over outputs and one over what each is made of, which a kernel needn't look for in
    /// its parameters.
    pub(super) one_loop: bool,
}

impl Rule {
    pub(super) fn is_index(self) -> bool {
        matches!(self, Self::Arg { .. })
    }

    /// Whether two results are joined by a few instructions.
    pub(super) fn joins_cheaply(self) -> bool {
        !matches!(self, Self::LogSumExp | Self::Exponentials { .. })
    }

    /// The element type of partial results over `dtype`.
    pub(super) fn partial(self, dtype: DType) -> DType {
        if self.is_index() { DType::U32 } else { accumulator(dtype) }
    }

    /// Words of a state.
    pub(super) fn state_words(self) -> usize {
        if matches!(self, Self::LogSumExp) { 2 } else { self.partial_numbers() }
    }

    /// Elements of a partial result.
    pub(super) fn partial_numbers(self) -> usize {
        if matches!(self, Self::Arg { .. } | Self::Exponentials { .. }) { 2 } else { 1 }
    }

    /// Whether what is read are pairs.
    pub(super) fn reads_pairs(self) -> bool {
        matches!(self, Self::Arg { pairs: true, .. } | Self::Exponentials { pairs: true })
    }

    /// Elements of each thing that is read.
    pub(super) fn read_numbers(self) -> usize {
        if self.reads_pairs() { 2 } else { 1 }
    }

    /// The rule by which partial results are reduced.
    pub(super) fn of_partials(self) -> Self {
        match self {
            Self::Number(combine, _, root) => Self::Number(combine, Map::Number, root),
            Self::LogSumExp => Self::LogSumExp,
            Self::Exponentials { .. } => Self::Exponentials { pairs: true },
            Self::Arg { smallest, .. } => Self::Arg { smallest, pairs: true },
        }
    }

    /// The kernel over `from`, into `to`.
    pub(super) fn variant(
        self,
        from: DType,
        to: DType,
        Access { vec_width, one_loop }: Access,
        results: Output,
    ) -> Variant {
        let (last, libs) = (results != Output::Partial, self.libs(vec_width, results));
        let types = [from, accumulator(from), to];
        let variant = match self {
            Self::Number(op, map, root) if from.is_float() => {
                let root = root && last;
                Variant::new(FLOAT.of(results), types, FloatConstants { op, map, root, one_loop })
            }
            Self::Number(op, map, _) => {
                let signed = from == DType::I32;
                Variant::new(INTEGER.of(results), types, IntegerConstants { op, map, signed, one_loop })
            }
            Self::LogSumExp => {
                Variant::new(LOG_SUM_EXP.of(results), types, SumConstants { pairs: false, one_loop })
            }
            Self::Exponentials { .. } => {
                Variant::new(LOG_SUM_EXP.of(results), types, SumConstants { pairs: true, one_loop })
            }
            Self::Arg { smallest, .. } => {
                let kind = match from {
                    DType::I32 => 1,
                    DType::U32 => 2,
                    _ => 0,
                };
                // An index that isn't negative has the same bits as u32.
                let types = [from, accumulator(from), DType::U32];
                Variant::new(ARG.of(results), types, ArgConstants { kind, smallest, pairs: !last, one_loop })
            }
        };
        variant.with_libs(libs)
    }

    /// The helper files by what is read and what is written.
    fn libs(self, vec_width: VecWidth, results: Output) -> &'static [Lib] {
        match (results, self.state_words()) {
            _ if self.reads_pairs() => &[STATE_PAIRS],
            (Output::Partial | Output::Final, _) => numbers!(vec_width),
            (Output::FixedUp, 1) => numbers!(vec_width, REDUCE_FIXUP),
            (Output::FixedUp, _) => numbers!(vec_width, REDUCE_FIXUP_PAIRS),
        }
    }
}

/// The type that elements are reduced in.
fn accumulator(dtype: DType) -> DType {
    if dtype.is_float() { DType::F32 } else { dtype }
}

/// Every variant that a launch can ask for.
pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    let mut push = |rule: Rule, from: DType, to: DType| {
        let words = (from == DType::F16).then_some(VecWidth::Two);
        let access = |vec_width| [false, true].map(|one_loop| Access { vec_width, one_loop });
        for access in VecWidth::all(from).into_iter().chain(words).flat_map(access) {
            variants.push(rule.variant(from, to, access, Output::Final));
            variants.push(rule.variant(from, rule.partial(from), access, Output::Partial));
            if !matches!(rule, Rule::Exponentials { .. }) {
                variants.push(rule.variant(from, to, access, Output::FixedUp));
            }
        }
        // What the second launch of a reduction that was cut reads.
        let (rule, from) = (rule.of_partials(), rule.partial(from));
        for access in VecWidth::all(from).into_iter().flat_map(access) {
            variants.push(rule.variant(from, to, access, Output::Final));
        }
    };
    for from in DType::ALL {
        for &reduce in ReduceOp::ALL.iter().filter(|op| from.is_float() || !op.is_float_only()) {
            let Ok(rule) = rule("reduce", reduce) else { continue };
            let to = if rule.is_index() { DType::I32 } else { from };
            push(rule, from, to);
            if from == DType::F16 && !rule.is_index() {
                push(rule, from, DType::F32);
            }
        }
        if from.is_float() {
            push(Rule::Exponentials { pairs: false }, from, DType::F32);
        }
    }
    variants
}
