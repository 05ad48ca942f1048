//! Two-dimensional convolution.

use super::product::Element;
use crate::want::Want;

/// The extents of one convolution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conv2d {
    /// `[N, C, H, W]`.
    pub(crate) input: [usize; 4],
    /// `[K, C, R, S]`.
    pub(crate) filter: [usize; 4],
    pub(crate) stride: [usize; 2],
    pub(crate) padding: [usize; 2],
}

impl Conv2d {
    /// `[N, K, P, Q]`.
    pub(crate) fn output(&self) -> [usize; 4] {
        let extent = |axis: usize| {
            let padded = self.input[axis + 2] + 2 * self.padding[axis];
            (padded - self.filter[axis + 2]) / self.stride[axis] + 1
        };
        [self.input[0], self.filter[0], extent(0), extent(1)]
    }

    /// The packed output: each element a sum of C·R·S products, so bounded like a matrix product's.
    pub(crate) fn wants(&self, input: &[f64], filter: &[f64], exact: bool) -> Vec<Want> {
        let [n, k, p, q] = self.output();
        let [_, channels, height, width] = self.input;
        let [_, _, r, s] = self.filter;
        let mut wants = Vec::with_capacity(n * k * p * q);
        for (n, k, y, x) in indices([n, k, p, q]) {
            let terms = indices([1, channels, r, s]).filter_map(|(_, c, r_at, s_at)| {
                let row = (y * self.stride[0] + r_at).checked_sub(self.padding[0])?;
                let column = (x * self.stride[1] + s_at).checked_sub(self.padding[1])?;
                let inside = row < height && column < width;
                inside.then(|| {
                    let value = input[((n * channels + c) * height + row) * width + column];
                    (value, filter[((k * channels + c) * r + r_at) * s + s_at])
                })
            });
            wants.push(Element { exact, ..Element::PLAIN }.want(terms));
        }
        wants
    }
}

fn indices([a, b, c, d]: [usize; 4]) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    (0..a * b * c * d).map(move |i| (i / d / c / b, i / d / c % b, i / d % c, i % d))
}
