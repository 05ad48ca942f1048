//! gemm and batched_gemm.

use backend_api::{BackendResult, BackendTranspose, ComputeBackend, DType};

use super::expect::{OVERFLOW, TOO_SMALL, at_least, overlap, short_row, too_small};
use super::operation::Change;
use super::{Handles, Operation, Role, Slot};
use BackendTranspose::{ConjTrans, NoTrans, Trans};

const HUGE: usize = 1 << 40;
const HALF: usize = usize::MAX / 2 + 1;

/// The arguments of a product of ones; A and B are stored with padding, C without.
#[derive(Clone, Copy)]
struct Gemm {
    trans: (BackendTranspose, BackendTranspose),
    m: usize,
    n: usize,
    k: usize,
    ld: [usize; 3],
    strides: [usize; 3],
    batch: usize,
}

const GOOD: Gemm =
    Gemm { trans: (NoTrans, NoTrans), m: 3, n: 4, k: 5, ld: [6, 5, 4], strides: STRIDES, batch: 2 };

/// Elements from one matrix of A, B and C to the next.
pub(super) const STRIDES: [usize; 3] = [18, 25, 12];

pub(super) fn operations() -> Vec<Operation> {
    vec![gemm(), accumulating_gemm(), batched_gemm()]
}

/// `batches` matrices of A (3×5, ld 6), B (5×4, ld 5) and C (3×4, packed).
pub(super) fn slots(dtype: DType, batches: usize) -> Vec<Slot> {
    let [a, b, c] = STRIDES.map(|stride| stride * (batches - 1));
    vec![
        Slot::new("a", Role::Input, dtype, a + 2 * 6 + 5),
        Slot::new("b", Role::Input, dtype, b + 4 * 5 + 4),
        Slot::new("c", Role::Output, dtype, c + 12),
    ]
}

fn call_gemm(b: &dyn ComputeBackend, h: &Handles, g: &Gemm) -> BackendResult<()> {
    let (&Gemm { m, n, k, .. }, [lda, ldb, ldc], (ta, tb)) = (g, g.ld, g.trans);
    b.gemm(ta, tb, m, n, k, 1.0, h[0], lda, h[1], ldb, 0.0, h[2], ldc)
}

fn call_batched(b: &dyn ComputeBackend, h: &Handles, g: &Gemm) -> BackendResult<()> {
    let (&Gemm { m, n, k, .. }, [lda, ldb, ldc], (ta, tb)) = (g, g.ld, g.trans);
    let [sa, sb, sc] = g.strides;
    b.batched_gemm(ta, tb, m, n, k, 1.0, h[0], lda, sa, h[1], ldb, sb, 0.0, h[2], ldc, sc, g.batch)
}

fn gemm() -> Operation {
    let op = "gemm";
    let changes: Vec<Change<Gemm>> = vec![
        ("lda below k", short_row(op, "lda", 5, 4), |g| g.ld[0] = 4),
        ("lda 0", short_row(op, "lda", 5, 0), |g| g.ld[0] = 0),
        ("lda 0 with k 0", at_least(op, "lda", 1, 0), |g| {
            (g.k, g.ld[0]) = (0, 0);
        }),
        ("lda below m, A transposed", short_row(op, "lda", 3, 2), |g| {
            (g.trans, g.ld[0]) = ((Trans, NoTrans), 2);
        }),
        ("lda below m, A conjugate transposed", short_row(op, "lda", 3, 2), |g| {
            (g.trans, g.ld[0]) = ((ConjTrans, NoTrans), 2);
        }),
        ("ldb below n", short_row(op, "ldb", 4, 3), |g| g.ld[1] = 3),
        ("ldb 0", short_row(op, "ldb", 4, 0), |g| g.ld[1] = 0),
        ("ldb below k, B transposed", short_row(op, "ldb", 5, 4), |g| {
            (g.trans, g.ld[1]) = ((NoTrans, Trans), 4);
        }),
        ("ldc below n", short_row(op, "ldc", 4, 3), |g| g.ld[2] = 3),
        ("ldc 0", short_row(op, "ldc", 4, 0), |g| g.ld[2] = 0),
        ("ldc 0 with n 0", at_least(op, "ldc", 1, 0), |g| {
            (g.n, g.ld[2]) = (0, 0);
        }),
        ("a row more than A has", too_small(op, "a", 68, 92), |g| g.m = 4),
        ("a column more than A has", too_small(op, "a", 68, 72), |g| g.k = 6),
        ("A transposed, beyond its end", too_small(op, "a", 68, 4 * (4 * 6 + 3)), |g| {
            g.trans = (Trans, NoTrans);
        }),
        ("a column more than B has", too_small(op, "b", 96, 100), |g| {
            (g.n, g.ld[2]) = (5, 5);
        }),
        ("ldb beyond B's end", too_small(op, "b", 96, 4 * (4 * 6 + 4)), |g| g.ld[1] = 6),
        ("ldc beyond C's end", too_small(op, "c", 48, 4 * (2 * 5 + 4)), |g| g.ld[2] = 5),
        ("k 0 and C too small", too_small(op, "c", 48, 64), |g| {
            (g.m, g.k) = (4, 0);
        }),
        ("m usize::MAX", OVERFLOW, |g| g.m = usize::MAX),
        ("m half of the range", OVERFLOW, |g| g.m = HALF),
        ("m 2^32", TOO_SMALL, |g| g.m = 1 << 32),
        ("m 2^31", TOO_SMALL, |g| g.m = 1 << 31),
        ("n usize::MAX", OVERFLOW, |g| {
            (g.n, g.ld) = (usize::MAX, [6, usize::MAX, usize::MAX]);
        }),
        ("k usize::MAX", OVERFLOW, |g| {
            (g.k, g.ld[0]) = (usize::MAX, usize::MAX);
        }),
        ("2^40 rows of 2^40", OVERFLOW, |g| {
            (g.m, g.ld[0]) = (HUGE, HUGE);
        }),
        ("lda usize::MAX", OVERFLOW, |g| g.ld[0] = usize::MAX),
        ("ldb usize::MAX", OVERFLOW, |g| g.ld[1] = usize::MAX),
        ("ldc usize::MAX", OVERFLOW, |g| g.ld[2] = usize::MAX),
        ("lda whose bytes overflow", OVERFLOW, |g| g.ld[0] = HALF / 4),
    ];
    Operation::of(op, slots(DType::F32, 1), 5.0, |_| GOOD, call_gemm, changes)
}

/// With beta 1, C is read as well; the faults of its handle are the same.
fn accumulating_gemm() -> Operation {
    let mut slots = slots(DType::F32, 1);
    slots[2] = slots[2].clone().holding(1.0);
    Operation::new("gemm", slots, 6.0, |b, h| {
        b.gemm(NoTrans, NoTrans, 3, 4, 5, 1.0, h[0], 6, h[1], 5, 1.0, h[2], 4)
    })
    .variant("with beta 1")
}

fn batched_gemm() -> Operation {
    let op = "batched_gemm";
    let changes: Vec<Change<Gemm>> = vec![
        ("ldb 0 with n 0", at_least(op, "ldb", 1, 0), |g| {
            (g.n, g.ld[1]) = (0, 0);
        }),
        ("lda below k with batch 0", short_row(op, "lda", 5, 4), |g| {
            (g.batch, g.ld[0]) = (0, 4);
        }),
        ("stride_c 0", overlap(op, "c", "c"), |g| g.strides[2] = 0),
        ("stride_c below a matrix", overlap(op, "c", "c"), |g| g.strides[2] = 11),
        ("stride_c of one row", overlap(op, "c", "c"), |g| g.strides[2] = 4),
        ("lda below k", short_row(op, "lda", 5, 4), |g| g.ld[0] = 4),
        ("ldb below n", short_row(op, "ldb", 4, 3), |g| g.ld[1] = 3),
        ("ldc below n", short_row(op, "ldc", 4, 3), |g| g.ld[2] = 3),
        ("a matrix more than A has", too_small(op, "a", 140, 4 * (36 + 17)), |g| g.batch = 3),
        ("a matrix more than B has", too_small(op, "b", 196, 4 * (50 + 24)), |g| {
            (g.batch, g.strides[0]) = (3, 0);
        }),
        ("a matrix more than C has", too_small(op, "c", 96, 4 * 36), |g| {
            (g.batch, g.strides) = (3, [0, 0, 12]);
        }),
        ("stride_a beyond A's end", too_small(op, "a", 140, 144), |g| g.strides[0] = 19),
        ("stride_b beyond B's end", too_small(op, "b", 196, 200), |g| g.strides[1] = 26),
        ("stride_c beyond C's end", too_small(op, "c", 96, 100), |g| g.strides[2] = 13),
        ("batch_count usize::MAX", OVERFLOW, |g| g.batch = usize::MAX),
        ("batch_count half of the range", OVERFLOW, |g| g.batch = HALF),
        ("stride_a usize::MAX", OVERFLOW, |g| g.strides[0] = usize::MAX),
        ("stride_b usize::MAX", OVERFLOW, |g| g.strides[1] = usize::MAX),
        ("stride_c usize::MAX", OVERFLOW, |g| g.strides[2] = usize::MAX),
        ("2^40 matrices 2^40 apart", OVERFLOW, |g| {
            (g.batch, g.strides[0]) = (HUGE, HUGE);
        }),
    ];
    Operation::of(op, slots(DType::F32, 2), 5.0, |_| GOOD, call_batched, changes)
}
