//! Batches of images: their extents, and the order of their elements.

/// In which order an image's elements lie in memory, and the elements of the filters for it. Everything is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImageLayout {
    /// Images `[N, C, H, W]`, filters `[K, C / groups, R, S]`.
    #[default]
    Nchw,
    /// Images `[N, H, W, C]`, filters `[K, R, S, C / groups]`.
    Nhwc,
}

/// The extents of a batch of images, whatever their [`ImageLayout`]. A sequence is an image of height 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageShape {
    /// Images, N.
    pub batch: usize,
    /// Channels, C.
    pub channels: usize,
    /// Rows of an image, H.
    pub height: usize,
    /// Columns of an image, W.
    pub width: usize,
}

impl ImageShape {
    /// Extents in the order N, C, H, W, as frameworks write shapes.
    #[must_use]
    pub const fn nchw([batch, channels, height, width]: [usize; 4]) -> Self {
        Self { batch, channels, height, width }
    }
}
