//! Random shapes of the operations that planners choose kernels for.

use backend_api::desc::{
    AttentionDesc, AttentionShape, ConvBackwardDataDesc, ConvDesc, ConvShape, ImageLayout, ImageShape,
    MatmulDesc, Matrix, QuantMatmulDesc, QuantMatrix, RmsNorm, Window,
};
use backend_api::quant::QuantFormat;
use backend_api::{BackendTranspose, DType, Gate, MathMode};

use super::MAX_BYTES;

/// Random shapes (a linear congruential generator with Knuth's constants), the same each time.
pub(in crate::ops) struct Shapes(pub(in crate::ops) u64);

impl Shapes {
    pub(in crate::ops) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    pub(in crate::ops) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// An extent up to `most`, each order of magnitude as likely as the others; two in three are round.
    pub(super) fn extent(&mut self, most: usize) -> usize {
        let power = self.below(most.ilog2() as usize + 1) as u32;
        match self.below(3) {
            0 => (1 << power) + self.below(1 << power),
            1 => 3 << power >> 1,
            _ => 1 << power,
        }
        .clamp(1, most)
    }

    pub(super) fn matmul(&mut self, [a, b, c, _]: [u64; 4]) -> MatmulDesc {
        loop {
            let [m, n, k] = [(); 3].map(|()| self.extent(8192));
            let types = self.pick(&[
                [DType::F32; 3],
                [DType::F16; 3],
                [DType::F16, DType::F16, DType::F32],
                [DType::F32, DType::F16, DType::F32],
            ]);
            let trans = [(); 2].map(|()| self.pick(&[BackendTranspose::NoTrans, BackendTranspose::Trans]));
            let batch = self.pick(&[1, 1, 1, 8]);
            let spare = self.pick(&[0, 0, 0, 3, 8]);
            let stored = |rows, columns, trans: BackendTranspose| {
                if trans.is_transposed() { [columns, rows] } else { [rows, columns] }
            };
            let of = |ptr, dtype, [rows, columns]: [usize; 2]| {
                let ld = columns + spare;
                (Matrix::new(ptr, dtype, ld).with_batch_stride(rows * ld), [rows, ld])
            };
            let (a, of_a) = of(a, types[0], stored(m, k, trans[0]));
            let (b, of_b) = of(b, types[1], stored(k, n, trans[1]));
            let (c, of_c) = of(c, types[2], [m, n]);
            let all = [of_a, of_b, of_c]
                .iter()
                .zip(types)
                .all(|(extents, dtype)| fits(dtype, &[batch, extents[0], extents[1]]));
            if all {
                return MatmulDesc::new(m, n, k, a, b, c)
                    .with_transpose(trans[0], trans[1])
                    .with_batch(batch);
            }
        }
    }

    pub(super) fn attention(&mut self, [q, k, v, o]: [u64; 4]) -> AttentionDesc {
        loop {
            let dtype = self.pick(&[DType::F32, DType::F16, DType::F16]);
            let [batch, groups, kv_heads] = [self.extent(16), self.pick(&[1, 1, 4, 8]), self.extent(16)];
            let (seq_q, seq_kv) = (self.pick(&[1, 1, 4]), self.extent(8192));
            let seq_q = if self.below(2) == 0 { seq_kv } else { seq_q };
            let head_dim = self.pick(&[32, 64, 64, 80, 96, 128, 128, 256, 33]);
            let heads = groups * kv_heads;
            if !fits(dtype, &[batch, heads, seq_q.max(seq_kv), head_dim]) {
                continue;
            }
            let shape = AttentionShape { batch, heads, seq_q, seq_kv, head_dim };
            let mut desc = AttentionDesc::new(dtype, q, k, v, o, shape);
            (desc.kv_heads, desc.causal) = (kv_heads, self.below(2) == 0);
            return desc;
        }
    }

    pub(super) fn conv(&mut self, [input, filter, output, _]: [u64; 4]) -> (ConvDesc, ConvBackwardDataDesc) {
        loop {
            let dtype = self.pick(&[DType::F32, DType::F16, DType::F16]);
            let groups = self.pick(&[1, 1, 1, 1, 2, 32]);
            let [channels, filters] =
                [(); 2].map(|()| groups * self.extent(if groups == 32 { 2 } else { 512 }));
            let [batch, height, width] = [self.extent(8), self.extent(128), self.extent(128)];
            let side = self.pick(&[1, 1, 3, 3, 3, 5, 7]);
            let window = Window::new([side, side])
                .with_stride([self.pick(&[1, 1, 1, 2]); 2])
                .with_padding([side / 2; 2]);
            let layout = self.pick(&[ImageLayout::Nchw, ImageLayout::Nhwc]);
            let shape = ConvShape::new(ImageShape { batch, channels, height, width }, filters, window)
                .with_groups(groups)
                .with_layout(layout);
            if !fits(dtype, &[batch, channels.max(filters), height + 8, width + 8]) {
                continue;
            }
            let forward = ConvDesc::new(dtype, input, filter, output, shape);
            return (forward, ConvBackwardDataDesc::new(dtype, filter, input, output, shape));
        }
    }

    pub(super) fn quant_matmul(&mut self, [a, b, c, other]: [u64; 4]) -> QuantMatmulDesc {
        let u4 =
            [(32, false), (128, true)].map(|(group, zero_points)| QuantFormat::U4 { group, zero_points });
        let formats: Vec<_> = QuantFormat::GGUF.into_iter().chain(u4).collect();
        loop {
            let format = self.pick(&formats);
            let (m, n, k) = (self.extent(2048), self.extent(1 << 14), 256 * self.extent(64));
            let dtypes =
                self.pick(&[[DType::F32; 2], [DType::F16; 2], [DType::F16; 2], [DType::F16, DType::F32]]);
            let spare = self.pick(&[0, 0, 0, 3, 8]);
            let gated = self.below(6) == 0;
            let rows = if gated { 2 * n } else { n };
            if !fits(DType::F32, &[m, k + 8]) || !fits(DType::F32, &[m, n]) || !fits(DType::F16, &[rows, k]) {
                continue;
            }
            let [dtype, result] = dtypes;
            let matrix = |ptr, dtype, columns| Matrix::new(ptr, dtype, columns);
            let mut desc = QuantMatmulDesc::new(
                m,
                matrix(a, dtype, k + spare),
                QuantMatrix::new(b, format, rows, k),
                matrix(c, result, n),
            );
            if gated {
                desc = desc.with_gate(Gate::Swiglu);
            }
            match self.below(6) {
                0 => desc = desc.with_bias(other),
                1 => desc = desc.with_residual(matrix(other, result, n)),
                2 => {
                    let norm = RmsNorm::new(other, 1e-5);
                    let narrows = dtype == DType::F32 && n % 2 == 0;
                    desc = desc.with_norm(if narrows { norm.with_output_dtype(DType::F16) } else { norm });
                }
                3 => desc = desc.with_math(MathMode::Int8),
                _ => {}
            }
            return desc;
        }
    }
}

fn fits(dtype: DType, extents: &[usize]) -> bool {
    extents.iter().product::<usize>() * dtype.size() <= MAX_BYTES
}
