//! Good calls with strides, steps and starts that are huge but never used, because what they step over is one
//! long.
//!
//! They are valid in BLAS and in every tensor library, and overflow where an implementation multiplies before
//! it looks. A device may refuse all but the products as beyond its limits.

use backend_api::desc::{
    AttentionDesc, AttentionMask, AttentionShape, BinaryDesc, ConvDesc, ConvShape, CopyDesc, HeadLayout,
    ImageShape, RopeDesc, RopeShape, RopeStyle, RopeTables, TensorDesc, UnaryDesc, Window,
};
use backend_api::{BackendTranspose, BinaryOp, DType, UnaryOp};

use super::{Operation, Role, Slot};
use BackendTranspose::{NoTrans, Trans};
use DType::F32;

const MAX: usize = usize::MAX;

/// What becomes the most negative number where a size is taken for a signed one.
const HALF: usize = MAX / 2 + 1;

pub(super) fn operations() -> Vec<Operation> {
    let operations = [convolutions(), tensors(), vec![attention(), rope()]].into_iter().flatten();
    let operations = operations.map(|operation| Operation { may_pass_limits: true, ..operation });
    operations.chain(products(MAX)).chain(products(HALF)).collect()
}

fn inputs<const N: usize>(operands: [(&'static str, usize); N], output: (&'static str, usize)) -> Vec<Slot> {
    let mut slots: Vec<Slot> =
        operands.map(|(arg, elements)| Slot::new(arg, Role::Input, F32, elements)).into();
    slots.push(Slot::new(output.0, Role::Output, F32, output.1));
    slots
}

/// Products with leading dimensions and strides of `far`.
fn products(far: usize) -> Vec<Operation> {
    let one_row = inputs([("a", 5), ("b", 20)], ("c", 4));
    let one_column = inputs([("a", 15), ("b", 5)], ("c", 3));
    let one_term_across = inputs([("a", 3), ("b", 4)], ("c", 12));
    let one_term = inputs([("a", 3), ("b", 4)], ("c", 12));
    let one_matrix = inputs([("a", 15), ("b", 20)], ("c", 12));
    vec![
        Operation::new("gemm", one_row, 5.0, move |b, h| {
            b.gemm(NoTrans, NoTrans, 1, 4, 5, 1.0, h[0], far, h[1], 4, 0.0, h[2], far)
        })
        .variant(format_args!("of one row (ld {far})")),
        Operation::new("gemm", one_term, 1.0, move |b, h| {
            b.gemm(NoTrans, NoTrans, 3, 4, 1, 1.0, h[0], 1, h[1], far, 0.0, h[2], 4)
        })
        .variant(format_args!("of one term (ld {far})")),
        Operation::new("gemm", one_term_across, 1.0, move |b, h| {
            b.gemm(Trans, Trans, 3, 4, 1, 1.0, h[0], far, h[1], 1, 0.0, h[2], 4)
        })
        .variant(format_args!("of one term, transposed (ld {far})")),
        Operation::new("gemm", one_column, 5.0, move |b, h| {
            b.gemm(NoTrans, Trans, 3, 1, 5, 1.0, h[0], 5, h[1], far, 0.0, h[2], 1)
        })
        .variant(format_args!("of one column (ld {far})")),
        Operation::new("batched_gemm", one_matrix, 5.0, move |b, h| {
            b.batched_gemm(NoTrans, NoTrans, 3, 4, 5, 1.0, h[0], 5, far, h[1], 4, far, 0.0, h[2], 4, far, 1)
        })
        .variant(format_args!("of one matrix (ld {far})")),
    ]
}

fn convolutions() -> Vec<Operation> {
    let slots = || inputs([("input", 2 * 3 * 5 * 6), ("filter", 4 * 3 * 3 * 2)], ("output", 2 * 4 * 3));
    let convolution = |padding: usize, result| {
        Operation::new("conv2d_forward", slots(), result, move |b, h| {
            let (stride, padding) = ([1, MAX], [0, padding]);
            b.conv2d_forward(h[0], &[2, 3, 5, 6], h[1], &[4, 3, 3, 2], h[2], &[2, 4, 3, 1], &stride, &padding)
        })
    };
    // Steps beyond the image: at the tenth, 32 bits would be back in it.
    let steps = |filters: usize| {
        let slots = inputs([("input", 6), ("filter", filters)], ("output", 10 * filters));
        Operation::new("conv2d", slots, 0.0, move |b, h| {
            let stride = 477_218_589;
            let window = Window::new([1, 1])
                .with_stride([1, stride])
                .with_asymmetric_padding([0, 1], [0, 9 * stride - 6]);
            let shape = ConvShape::new(ImageShape::nchw([1, 1, 1, 6]), filters, window);
            b.conv2d(&ConvDesc::new(F32, h[0], h[1], h[2], shape))
        })
        .variant(format_args!("of steps over padding ({filters} filters)"))
    };
    vec![
        steps(1),
        steps(20),
        convolution(0, 18.0).variant("of one huge step"),
        convolution(1 << 40, 0.0).variant("of padding only"),
    ]
}

fn tensors() -> Vec<Operation> {
    const SHAPE: &[usize] = &[1, 5];
    const STRIDES: &[usize] = &[MAX, 1];
    let strided = |ptr| TensorDesc::strided(ptr, F32, SHAPE, STRIDES);
    let pair = |input, output| {
        let mut slots = inputs([(input, 5)], (output, 5));
        if output == "output" {
            slots[0].role = Role::InPlaceInput;
        }
        slots
    };
    let mut three = inputs([("a", 5), ("b", 5)], ("output", 5));
    (three[0].role, three[1].role) = (Role::InPlaceInput, Role::InPlaceInput);
    vec![
        Operation::new("unary_ext", pair("input", "output"), -1.0, move |b, h| {
            b.unary_ext(&UnaryDesc::new(UnaryOp::Neg, strided(h[0]), strided(h[1])))
        })
        .variant("of one row"),
        Operation::new("copy", pair("src", "dst"), 1.0, move |b, h| {
            b.copy(&CopyDesc::new(strided(h[0]), strided(h[1])))
        })
        .variant("of one row"),
        Operation::new("binary_ext", three, 2.0, move |b, h| {
            b.binary_ext(&BinaryDesc::new(BinaryOp::Add, strided(h[0]), strided(h[1]), strided(h[2])))
        })
        .variant("of one row"),
    ]
}

const ONE_SEQUENCE: HeadLayout = HeadLayout { offset: 0, batch: MAX, head: MAX, token: 6 };

fn attention() -> Operation {
    let mut slots = inputs([("q", 24), ("k", 30), ("v", 30)], ("o", 24));
    slots.push(Slot::new("mask", Role::Input, F32, 20));
    Operation::new("attention_ext", slots, 1.0, |b, h| {
        let mut desc = AttentionDesc::new(
            F32,
            h[0],
            h[1],
            h[2],
            h[3],
            AttentionShape { batch: 1, heads: 1, seq_q: 4, seq_kv: 5, head_dim: 6 },
        );
        (desc.q_layout, desc.k_layout) = (Some(ONE_SEQUENCE), Some(ONE_SEQUENCE));
        (desc.v_layout, desc.o_layout) = (Some(ONE_SEQUENCE), Some(ONE_SEQUENCE));
        (desc.window, desc.softcap) = (Some(MAX), f64::MAX);
        desc.mask = Some(AttentionMask { ptr: h[4], batch_stride: MAX, head_stride: MAX, query_stride: 5 });
        b.attention_ext(&desc)
    })
    .variant("of one head")
}

fn rope() -> Operation {
    let slots =
        vec![Slot::new("input", Role::InPlaceInput, F32, 18), Slot::new("output", Role::Output, F32, 18)];
    // With nothing rotated, the tables and the start go unused.
    Operation::new("rope", slots, 1.0, |b, h| {
        let mut desc = RopeDesc::new(
            F32,
            h[0],
            h[1],
            RopeTables { cos: 0, sin: 0, max_position: 0 },
            RopeShape { batch: 1, heads: 1, seq: 3, head_dim: 6 },
            RopeStyle::Half,
        );
        (desc.rotary_dim, desc.start) = (0, MAX);
        (desc.input_layout, desc.output_layout) = (Some(ONE_SEQUENCE), Some(ONE_SEQUENCE));
        b.rope(&desc)
    })
    .variant("of nothing")
}
