//! How much arithmetic a descriptor asks for. Strides of 0 let small memory name endless work, so backends
//! compare an estimate of the time with [`MAX_SECONDS`](crate::support::MAX_SECONDS) before they begin.

use super::{
    AttentionAlignment, AttentionDesc, ConvGather, ExpertMatmulDesc, MatmulDesc, PoolShape, QuantMatmulDesc,
    ReduceLoops,
};

/// The product of the extents, without overflow.
fn volume(extents: &[usize]) -> f64 {
    extents.iter().map(|&extent| extent as f64).product()
}

impl MatmulDesc {
    /// Floating-point operations, a multiplication with its addition being two.
    #[must_use]
    pub fn flops(&self) -> f64 {
        2.0 * volume(&[self.batch, self.m, self.n, self.k])
    }
}

impl QuantMatmulDesc {
    /// Floating-point operations, a multiplication with its addition being two.
    #[must_use]
    pub fn flops(&self) -> f64 {
        2.0 * volume(&[self.m, self.b.rows, self.k()])
    }
}

impl ExpertMatmulDesc {
    /// Floating-point operations, a multiplication with its addition being two.
    #[must_use]
    pub fn flops(&self) -> f64 {
        2.0 * volume(&[self.rows, self.used, self.b.rows / self.experts.max(1), self.k()])
    }
}

impl AttentionDesc {
    /// Floating-point operations of both products. Keys that `causal` hides are left out, those hidden by
    /// lengths and masks, which lie on the device, are not.
    #[must_use]
    pub fn flops(&self) -> f64 {
        let (queries, keys) = (self.seq_q as f64, self.seq_kv as f64);
        let seen = match self.alignment {
            _ if !self.causal => keys,
            AttentionAlignment::TopLeft if queries <= keys => queries / 2.0,
            AttentionAlignment::TopLeft => keys - keys * keys / (2.0 * queries),
            _ => keys - queries.min(keys) / 2.0,
        };
        let both = self.head_dim as f64 + self.v_head_dim as f64;
        2.0 * both * volume(&[self.batch, self.heads, self.seq_q]) * seen
    }
}

impl ConvGather {
    /// Floating-point operations, a multiplication with its addition being two.
    #[must_use]
    pub fn flops(&self) -> f64 {
        let results = [self.batch, self.groups, self.filters, self.result[0], self.result[1]];
        2.0 * volume(&results) * volume(&[self.channels, self.filter[0], self.filter[1]])
    }
}

impl PoolShape {
    /// Elements of the input that a window can meet, those in the padding left out.
    #[must_use]
    pub fn window_elements(&self) -> f64 {
        volume(&[self.window.size[0].min(self.input[0]), self.window.size[1].min(self.input[1])])
    }

    /// Elements that all windows read together.
    #[must_use]
    pub fn reads(&self) -> f64 {
        volume(&[self.batch, self.channels, self.output[0], self.output[1]]) * self.window_elements()
    }
}

impl ReduceLoops {
    /// Elements that are read.
    #[must_use]
    pub fn reads(&self) -> f64 {
        volume(&[self.outputs, self.length])
    }
}
