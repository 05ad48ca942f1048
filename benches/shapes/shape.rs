//! One line of a sweep: what is called, and how large it is.

use std::fmt;

use backend_api::DType;
use backend_api::desc::{ConvShape, ImageLayout, ImageShape, Window};

use super::family::Family;

/// A call of a family, as the first four columns say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What is called.
    pub family: Family,
    /// The operands' type.
    pub dtype: DType,
    /// One of the family's variants.
    pub variant: &'static str,
    /// As many as the family's rank.
    pub sizes: Vec<usize>,
}

/// The type of a name in the second column.
pub fn dtype(name: &str) -> Result<DType, String> {
    let found = [DType::F32, DType::F16].into_iter().find(|dtype| dtype.name() == name);
    found.ok_or_else(|| format!("{name:?} is neither f32 nor f16"))
}

impl Shape {
    /// The shape of a line. Columns after the fourth are ignored, so that results can be read again.
    pub fn parse(line: &str) -> Result<Self, String> {
        let mut columns = line.split_whitespace();
        let mut column = || columns.next().ok_or_else(|| format!("{line:?} has fewer than four columns"));
        let family = Family::parse(column()?)?;
        let dtype = dtype(column()?)?;
        let variant = column()?;
        let variant = family.variants().iter().find(|name| **name == variant);
        let variant = variant.ok_or_else(|| format!("{line:?}: there is no such variant of {family}"))?;
        let sizes: Result<Vec<usize>, _> = column()?.split('x').map(str::parse).collect();
        let sizes = sizes.map_err(|_| format!("{line:?}: sizes are numbers with x between"))?;
        if sizes.len() != family.rank() {
            return Err(format!("{line:?} has {} sizes, {family} has {}", sizes.len(), family.rank()));
        }
        Ok(Self { family, dtype, variant, sizes })
    }

    /// The sizes of a family whose rank is `N`.
    ///
    /// # Panics
    /// If the family's rank is another.
    pub fn sizes<const N: usize>(&self) -> [usize; N] {
        self.sizes.as_slice().try_into().expect("the family's rank")
    }

    /// The shape of a convolution, by its layout.
    ///
    /// # Panics
    /// If the shape is of another family.
    pub fn conv(&self) -> ConvShape {
        let [n, c, h, w, filters, window, stride, padding, groups] = self.sizes();
        let window = Window::new([window; 2]).with_stride([stride; 2]).with_padding([padding; 2]);
        let shape = ConvShape::new(ImageShape::nchw([n, c, h, w]), filters, window).with_groups(groups);
        if self.variant == "nhwc" { shape.with_layout(ImageLayout::Nhwc) } else { shape }
    }

    /// Elements of each operand, and multiplications with an addition or, where there are none, elements.
    pub fn cost(&self) -> Result<([usize; 4], u64), String> {
        let product = |batch: usize, m: usize, n: usize, k: usize| {
            ([batch * m * k, batch * k * n, batch * m * n, 0], (batch * m * n) as u64 * k as u64)
        };
        Ok(match self.family {
            Family::Gemm | Family::FewRows => {
                let [m, n, k] = self.sizes();
                product(1, m, n, k)
            }
            Family::Batched => {
                let [batch, m, n, k] = self.sizes();
                product(batch, m, n, k)
            }
            Family::Conv => {
                let [n, c, h, w, filters, window, _, _, groups] = self.sizes();
                let [p, q] = self.conv().output("conv").map_err(|error| format!("{self}: {error}"))?;
                let (filter, output) = (filters * (c / groups) * window * window, n * filters * p * q);
                ([n * c * h * w, filter, output, 0], (output * filter / filters.max(1)) as u64)
            }
            Family::Attention | Family::Decode => {
                let [batch, heads, kv_heads, queries, keys, size] = self.sizes();
                let (q, k) = (batch * heads * queries * size, batch * kv_heads * keys * size);
                ([q, k, q, k], 2 * q as u64 * keys as u64)
            }
            Family::Rows | Family::Reduce | Family::Elementwise => {
                let [rows, columns] = self.sizes();
                let all = rows * columns;
                ([all, all, all, columns], all as u64)
            }
        })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.sizes.iter().map(usize::to_string).collect();
        write!(f, "{}\t{}\t{}\t{}", self.family, self.dtype, self.variant, sizes.join("x"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_is_printed() {
        for line in ["gemm\tf16\tnt\t32x4096x4096", "conv\tf32\tnhwc\t4x320x64x64x320x3x1x1x1"] {
            assert_eq!(Shape::parse(line).map(|shape| shape.to_string()), Ok(line.to_owned()));
        }
        assert!(Shape::parse("gemm f32 nn 1x2").is_err_and(|reason| reason.contains("gemm has 3")));
        assert!(Shape::parse("gemm f32 xx 1x2x3").is_err());
    }
}
