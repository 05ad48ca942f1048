//! `binary_ext`: every function over strided f32 and f16, with every way to broadcast.

use backend_api::desc::{BinaryDesc, TensorDesc};
use backend_api::{BackendResult, BinaryOp, ComputeBackend, DType};

use super::binary::pair;
use super::layout::{Layout, SHAPES, Tensor, shape_name};
use crate::case::Case;
use crate::grid::pairwise;
use crate::oracle::binary::binary;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

/// How an input's shape differs from the output's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broadcast {
    /// Not at all.
    Same,
    /// The last dimension only: a bias.
    Row,
    /// A single number, of rank 0.
    Scalar,
    /// The first dimension has extent 1.
    First,
    /// The last dimension has extent 1: a column.
    Last,
    /// Every second dimension has extent 1.
    Alternating,
    /// The full shape, with a stride of 0 in the first dimension.
    Stride,
}

impl Broadcast {
    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

pub(super) const BROADCASTS: [Broadcast; 7] = [
    Broadcast::Same,
    Broadcast::Row,
    Broadcast::Scalar,
    Broadcast::First,
    Broadcast::Last,
    Broadcast::Alternating,
    Broadcast::Stride,
];

#[derive(Clone, Copy, Debug)]
struct Binary {
    op: BinaryOp,
    dtype: DType,
    shape: &'static [usize],
    broadcasts: [Broadcast; 2],
    layouts: [Layout; 3],
}

pub(super) fn cases() -> Vec<Case> {
    let ops: Vec<BinaryOp> = BinaryOp::ALL.iter().copied().filter(|op| op.accepts(DType::F32)).collect();
    let counts = [ops.len(), 2, SHAPES.len(), 7, 7, 5, 5, 5];
    let grids = ["binary_ext 1", "binary_ext 2", "binary_ext 3"].map(|seed| pairwise(&counts, seed));
    let covering = grids.into_iter().flatten().map(|row| Binary {
        op: ops[row[0]],
        dtype: [DType::F32, DType::F16][row[1]],
        shape: SHAPES[row[2]],
        broadcasts: [BROADCASTS[row[3]], BROADCASTS[row[4]]],
        layouts: [Layout::ALL[row[5]], Layout::ALL[row[6]], Layout::ALL[row[7]]],
    });
    let in_place = ops.iter().flat_map(|&op| {
        let dtypes = [DType::F32, DType::F16];
        dtypes.into_iter().flat_map(move |dtype| {
            Layout::ALL.into_iter().map(move |layout| in_place(op, dtype, layout, SMALL))
        })
    });
    let gathered = [DType::F32, DType::F16].into_iter().flat_map(gathered);
    covering.map(Binary::case).chain(in_place).chain(gathered).collect()
}

/// The shape of tensors that are changed in place.
const SMALL: [usize; 3] = [6, 9, 13];

/// Rows of odd length, so many that vectors are worth it, beside what isn't laid out as they are.
fn gathered(dtype: DType) -> Vec<Case> {
    use Broadcast::{Last, Row, Same};
    let case = |broadcasts, b| {
        let layouts = [Layout::Packed, b, Layout::Packed];
        Binary { op: BinaryOp::Sub, dtype, shape: &[1021, 1031], broadcasts, layouts }.case()
    };
    let broadcast = [[Same, Row], [Row, Same], [Same, Last], [Last, Same]];
    let mut cases: Vec<Case> = broadcast.map(|broadcasts| case(broadcasts, Layout::Packed)).into();
    cases.extend([Layout::Gaps, Layout::Turned].map(|layout| case([Same, Same], layout)));
    cases.push(in_place(BinaryOp::Sub, dtype, Layout::Packed, [13, 79, 1031]));
    if dtype == DType::F16 {
        // Large enough that the odd ends have launches of their own.
        cases.push(in_place(BinaryOp::Sub, dtype, Layout::Packed, [13, 157, 1033]));
    }
    cases
}

impl Binary {
    fn case(self) -> Case {
        let shape = shape_name(self.shape);
        let inputs = self.broadcasts.map(Broadcast::name).join("-");
        let layouts = self.layouts.map(Layout::name).join("-");
        let name = format!("{}_{}_{shape}_{inputs}_{layouts}", self.op.name(), self.dtype);
        Case::new("binary_ext", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let Self { op, dtype, .. } = self;
        let output = Tensor::new(rng, self.shape, self.layouts[2]);
        let [a, b] = [0, 1].map(|i| input(rng, self.shape, self.broadcasts[i], self.layouts[i]));
        let numbers = |tensor: &Tensor, rng: &mut Rng, second: bool| {
            tensor.store(|_| {
                let (x, y) = pair(rng, op, dtype);
                if second { y } else { x }
            })
        };
        let (a_data, b_data) = (numbers(&a, rng, false), numbers(&b, rng, true));
        let pairs = Pairs { dtype, a: (a, a_data), b: (b, b_data), output: (output, dtype) };
        pairs.trial(
            |a, b| binary(op, a, b, dtype),
            move |backend, [a, b, output]| backend.binary_ext(&BinaryDesc::new(op, a, b, output)),
        )
    }
}

/// The shape of an output, how two inputs broadcast to it, and where its elements lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shapes {
    pub(super) output: &'static [usize],
    pub(super) broadcasts: [Broadcast; 2],
    pub(super) layout: Layout,
}

impl Shapes {
    /// The name of the case of a function of elements of one type.
    pub(super) fn case_name(self, op: &str, dtype: DType) -> String {
        let inputs = self.broadcasts.map(Broadcast::name).join("-");
        format!("{op}_{dtype}_{}_{inputs}_{}", shape_name(self.output), self.layout.name())
    }
}

/// Two tensors with their data, which broadcast to the shape of a third.
pub(super) struct Pairs {
    /// The inputs' element type.
    pub(super) dtype: DType,
    pub(super) a: (Tensor, Vec<f64>),
    pub(super) b: (Tensor, Vec<f64>),
    /// The output with its element type.
    pub(super) output: (Tensor, DType),
}

impl Pairs {
    /// Random numbers in inputs that broadcast, and packed else, of the types of inputs and output.
    pub(super) fn random(
        rng: &mut Rng,
        [dtype, to]: [DType; 2],
        shapes: Shapes,
        number: fn(&mut Rng, DType) -> f64,
    ) -> Self {
        let Shapes { output: shape, broadcasts, layout } = shapes;
        let output = Tensor::new(rng, shape, layout);
        let [a, b] = broadcasts.map(|broadcast| input(rng, shape, broadcast, Layout::Packed));
        let [a_data, b_data] = [&a, &b].map(|tensor| tensor.store(|_| number(rng, dtype)));
        Self { dtype, a: (a, a_data), b: (b, b_data), output: (output, to) }
    }

    /// A trial of `call`, which is to give what is `want`ed of each pair of elements.
    pub(super) fn trial(
        self,
        want: impl Fn(f64, f64) -> Want,
        call: impl Fn(&dyn ComputeBackend, [TensorDesc<'_>; 3]) -> BackendResult<()> + 'static,
    ) -> Trial {
        let Self { dtype, a: (a, a_data), b: (b, b_data), output: (output, to) } = self;
        let [a_at, b_at] = [&a, &b].map(|tensor| aligned(tensor, &output.shape).offsets());
        let offsets = output.offsets().into_iter().enumerate();
        let places = offsets.map(|(i, place)| (place, want(a_data[a_at[i]], b_data[b_at[i]]))).collect();
        let mut trial = Trial::new();
        trial.input("a", dtype, &a_data);
        trial.input("b", dtype, &b_data);
        trial.scattered("output", to, output.store(|_| f64::NAN), places);
        trial.calling(move |backend, p| {
            call(backend, [a.desc(p[0], dtype), b.desc(p[1], dtype), output.desc(p[2], to)])
        })
    }
}

/// An input that broadcasts to `shape`.
pub(super) fn input(rng: &mut Rng, shape: &[usize], broadcast: Broadcast, layout: Layout) -> Tensor {
    let last = shape.len().saturating_sub(1);
    let with_ones = |is_one: &dyn Fn(usize) -> bool| -> Vec<usize> {
        let extents = shape.iter().enumerate();
        extents.map(|(dim, &extent)| if is_one(dim) { 1 } else { extent }).collect()
    };
    let own = match broadcast {
        Broadcast::Same | Broadcast::Stride => shape.to_vec(),
        Broadcast::Row => shape[last.min(shape.len())..].to_vec(),
        Broadcast::Scalar => Vec::new(),
        Broadcast::First => with_ones(&|dim| dim == 0),
        Broadcast::Last => with_ones(&|dim| dim == last),
        Broadcast::Alternating => with_ones(&|dim| dim % 2 == 1),
    };
    let tensor = Tensor::new(rng, &own, layout);
    if broadcast == Broadcast::Stride && !shape.is_empty() { tensor.repeated(&[0]) } else { tensor }
}

/// `tensor` as seen through `shape`: the oracle's own broadcasting.
pub(super) fn aligned(tensor: &Tensor, shape: &[usize]) -> Tensor {
    let missing = shape.len() - tensor.shape.len();
    let mut seen = tensor.clone();
    seen.shape = shape.to_vec();
    seen.strides = vec![0; missing];
    for (dim, &stride) in tensor.strides.iter().enumerate() {
        let repeats = tensor.shape[dim] == 1;
        seen.strides.push(if repeats { 0 } else { stride });
    }
    seen
}

/// The output is a, b is broadcast onto it.
fn in_place(op: BinaryOp, dtype: DType, layout: Layout, shape: [usize; 3]) -> Case {
    let size = if shape == SMALL { String::new() } else { shape_name(&shape) + "_" };
    let name = format!("{}_{dtype}_{size}{}_onto_a", op.name(), layout.name());
    Case::new("binary_ext", name, move |rng| {
        let columns = shape[2];
        let tensor = Tensor::new(rng, &shape, layout);
        let row: Vec<f64> = (0..columns).map(|_| pair(rng, op, dtype).1).collect();
        let before = tensor.store(|_| pair(rng, op, dtype).0);
        let offsets = tensor.offsets().into_iter().enumerate();
        let places =
            offsets.map(|(i, place)| (place, binary(op, before[place], row[i % columns], dtype))).collect();
        let mut trial = Trial::new();
        trial.scattered("a", dtype, before, places);
        trial.input("b", dtype, &row);
        trial.calling(move |backend, p| {
            let a = tensor.desc(p[0], dtype);
            let extents = [columns];
            let b = TensorDesc::packed(p[1], dtype, &extents);
            backend.binary_ext(&BinaryDesc::new(op, a, b, a))
        })
    })
}
