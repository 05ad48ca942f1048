//! Operations that move elements move their bits: a NaN keeps its sign and payload, quiet or signalling.

use backend_api::desc::{
    ConcatDesc, CopyDesc, GatherDesc, IndexShape, PadDesc, PermuteDesc, RepeatDesc, ScatterDesc, SliceDesc,
    TensorDesc, WhereDesc,
};
use backend_api::{BackendError, BackendResult, ComputeBackend, DType, ScatterOp};

use super::copy_dtod::{expect_bytes, free, text, upload};
use crate::case::Case;
use crate::device::Device;

/// A matrix whose rows are whole vectors of 16 bytes, and one whose rows are not.
const SHAPES: [[usize; 2]; 2] = [[8, 16], [7, 9]];

/// An operation that moves elements, and for each element of the output the one of the input that it is, given
/// the input's shape.
struct Mover {
    name: &'static str,
    call: fn(&dyn ComputeBackend, &Operands) -> BackendResult<()>,
    moved: fn(usize, [usize; 2]) -> usize,
}

struct Operands {
    dtype: DType,
    shape: [usize; 2],
    from: u64,
    /// Indices of u32, as many as there are elements, down to 0.
    descending: u64,
    to: u64,
}

impl Operands {
    fn whole(&self, ptr: u64) -> TensorDesc<'_> {
        TensorDesc::packed(ptr, self.dtype, &self.shape)
    }

    /// All elements as a table of one column, each named by one index.
    const fn column(&self) -> IndexShape {
        let count = self.shape[0] * self.shape[1];
        IndexShape { rows: count, columns: 1, count }
    }
}

static MOVERS: [Mover; 9] = [
    Mover {
        name: "copy",
        call: |backend, x| backend.copy(&CopyDesc::new(x.whole(x.from), x.whole(x.to))),
        moved: |i, _| i,
    },
    Mover {
        name: "permute",
        call: |backend, x| {
            let [rows, columns] = x.shape;
            let turned = [columns, rows];
            let to = TensorDesc::packed(x.to, x.dtype, &turned);
            backend.permute(&PermuteDesc::new(x.whole(x.from), to, &[1, 0]))
        },
        moved: |i, [rows, columns]| i % rows * columns + i / rows,
    },
    Mover {
        name: "slice",
        call: |backend, x| {
            backend.slice(&SliceDesc::new(x.whole(x.from), x.whole(x.to), &[0, 0]).with_steps(&[1, 1]))
        },
        moved: |i, _| i,
    },
    Mover {
        name: "concat",
        call: |backend, x| {
            let [rows, columns] = x.shape;
            let (first, rest) = ([1, columns], [rows - 1, columns]);
            // The first row twice: as a part of its own, and as the first of the others.
            let parts =
                [TensorDesc::packed(x.from, x.dtype, &first), TensorDesc::packed(x.from, x.dtype, &rest)];
            backend.concat(&ConcatDesc::new(&parts, x.whole(x.to), 0))
        },
        moved: |i, [_, columns]| if i < columns { i } else { i - columns },
    },
    Mover {
        name: "pad",
        call: |backend, x| backend.pad(&PadDesc::new(x.whole(x.from), x.whole(x.to), &[0, 0], 1.0)),
        moved: |i, _| i,
    },
    Mover {
        name: "repeat",
        call: |backend, x| {
            let row = [1, x.shape[1]];
            let row = TensorDesc::packed(x.from, x.dtype, &row);
            backend.repeat(&RepeatDesc::new(row, x.whole(x.to)))
        },
        moved: |i, [_, columns]| i % columns,
    },
    Mover {
        name: "gather",
        call: |backend, x| backend.gather(&GatherDesc::new(x.dtype, x.from, x.descending, x.to, x.column())),
        moved: |i, [rows, columns]| rows * columns - 1 - i,
    },
    Mover {
        name: "scatter",
        call: |backend, x| {
            let desc = ScatterDesc::new(ScatterOp::Assign, x.dtype, x.to, x.descending, x.from, x.column());
            backend.scatter(&desc)
        },
        moved: |i, [rows, columns]| rows * columns - 1 - i,
    },
    Mover {
        name: "where",
        call: |backend, x| {
            // The last condition is 0, and both choices are the source.
            let condition = TensorDesc::packed(x.descending, DType::U32, &x.shape);
            let from = x.whole(x.from);
            backend.where_cond(&WhereDesc::new(condition, from, from, x.whole(x.to)))
        },
        moved: |i, _| i,
    },
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mover in &MOVERS {
        for dtype in [DType::F32, DType::F16] {
            for shape in SHAPES {
                let name = format!("{}_{dtype}_{}x{}", mover.name, shape[0], shape[1]);
                cases.push(Case::script("payload", name, move |device| {
                    Box::pin(moved(device, mover, dtype, shape))
                }));
            }
        }
    }
    cases
}

async fn moved(device: &Device<'_>, mover: &Mover, dtype: DType, shape: [usize; 2]) -> Result<(), String> {
    let n = shape[0] * shape[1];
    let elements: Vec<Vec<u8>> = (0..n).map(|i| element(dtype, i)).collect();
    let from = elements.concat();
    let moved: Vec<u8> = (0..n).flat_map(|i| elements[(mover.moved)(i, shape)].clone()).collect();
    let descending: Vec<u8> = (0..n as u32).rev().flat_map(u32::to_le_bytes).collect();
    let operands = Operands {
        dtype,
        shape,
        from: upload(device, &from)?,
        descending: upload(device, &descending)?,
        to: upload(device, &vec![0x11; from.len()])?,
    };
    let supported = dtype != DType::F16 || device.backend.capabilities().map_err(text)?.f16;
    match (mover.call)(device.backend, &operands) {
        Ok(()) => expect_bytes(device, "the output", operands.to, &moved).await?,
        Err(BackendError::Unsupported { .. }) if !supported => {}
        Err(error) => return Err(error.to_string()),
    }
    free(device, &[operands.from, operands.descending, operands.to])
}

/// Mostly NaN: of both signs, quiet and signalling, with every other payload.
fn element(dtype: DType, i: usize) -> Vec<u8> {
    let sign = (i as u32 % 2) << 31;
    match dtype {
        DType::F16 => {
            let payload = 1 + (i as u32 * 37) % 0x3ff;
            ((sign >> 16 | 0x7c00 | payload) as u16).to_le_bytes().to_vec()
        }
        _ => {
            let payload = 1 + (i as u32 * 0x1_2345) % 0x7f_ffff;
            (sign | 0x7f80_0000 | payload).to_le_bytes().to_vec()
        }
    }
}
