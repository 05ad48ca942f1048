//! How windows move over images and volumes.

use backend_api::desc::Window;

use super::call::Call;
use super::shape::extent;
use crate::error::{Error, Result};
use crate::model::{Graph, Node};
use crate::tensor::Tensor;

/// How a window moves along an axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slide {
    size: usize,
    pub(super) stride: usize,
    pub(super) dilation: usize,
    pub(super) before: usize,
    after: usize,
}

impl Slide {
    /// A window of one element at each place.
    pub(super) const STILL: Self = Self { size: 1, stride: 1, dilation: 1, before: 0, after: 0 };

    /// A window of neighbours around each element, with padding for the first and the last ones; `None` for a window of
    /// no elements.
    pub(super) fn around_each(size: usize) -> Option<Self> {
        let padding = size.checked_sub(1)?;
        Some(Self { size, ..Self::STILL }.padded(padding, false))
    }

    /// The window with other padding, half of it on each side, an odd element before the image or behind it.
    pub(super) fn padded(self, padding: usize, odd_before: bool) -> Self {
        let before = if odd_before { padding.div_ceil(2) } else { padding / 2 };
        Self { before, after: padding - before, ..self }
    }

    /// Elements of padding on both sides.
    pub(super) const fn padding(&self) -> usize {
        self.before + self.after
    }

    /// Elements from the first to the last one of the window.
    pub(super) fn span(&self) -> usize {
        self.dilation * self.size.saturating_sub(1) + 1
    }

    /// The padding behind the image extended to the end of the first window, where that is less than a stride away:
    /// in the mode `ceil`, such a window counts.
    pub(super) fn up_to_first_end(self, length: usize) -> Self {
        let missing = self.span().saturating_sub(length + self.before + self.after);
        let counts = missing < self.stride.max(1) && length + self.before > 0;
        Self { after: self.after + if counts { missing } else { 0 }, ..self }
    }

    /// How often a window fits, and in the mode `ceil` once more if it begins inside.
    pub(super) fn places(&self, length: usize, ceil: bool) -> Result<usize> {
        let stride = self.stride.max(1);
        let room = (length + self.before + self.after).checked_sub(self.span());
        let room = room.ok_or_else(|| Error::invalid("a window larger than the image"))?;
        let whole = room / stride + 1;
        let is_more = ceil && room % stride != 0;
        Ok(whole + usize::from(is_more && whole * stride < length + self.before))
    }
}

/// A window over an image's height and width.
pub(super) fn window([down, across]: [Slide; 2]) -> Window {
    Window::new([down.size, across.size])
        .with_stride([down.stride, across.stride])
        .with_dilation([down.dilation, across.dilation])
        .with_asymmetric_padding([down.before, across.before], [down.after, across.after])
}

/// What is known when a node is taken: so many dimensions beside batch and channels, and no padding that cuts.
pub(super) fn is_of(dimensions: &[usize], graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    let rank = graph.input_rank(node, 0).or_else(|| match node.operator.as_str() {
        "Conv" | "ConvInteger" | "ConvTranspose" => graph.input_rank(node, 1),
        "QLinearConv" => graph.input_rank(node, 3),
        _ => node.ints("kernel_shape").map(|sizes| sizes.len() + 2),
    });
    if !rank.is_some_and(|rank| dimensions.iter().any(|&beside| beside + 2 == rank)) {
        return Err(format!("other than {dimensions:?} dimensions"));
    }
    if node.ints("pads").is_some_and(|pads| pads.iter().any(|&pad| pad < 0)) {
        return Err("negative pads".to_owned());
    }
    Ok(())
}

/// The extents behind batch and channels; those that are missing before them are 1, as a sequence is an image
/// of height 1.
pub(super) fn spatial<const N: usize>(tensor: &Tensor) -> Result<[usize; N]> {
    let wrong = || Error::invalid(format!("{:?} has other than {N} dimensions", tensor.shape));
    let extents = tensor.shape.get(2..).filter(|extents| !extents.is_empty()).ok_or_else(wrong)?;
    aligned(extents.iter().copied().map(Ok), 1, extents.len())?.ok_or_else(wrong)
}

/// The shape of an image or a volume, or of a sequence if the input was one.
pub(super) fn shaped<const N: usize>(x: &Tensor, channels: usize, extents: [usize; N]) -> Vec<usize> {
    let batch = x.shape.first().copied().unwrap_or(1);
    let beside = extents.iter().skip((N + 2).saturating_sub(x.rank()));
    [batch, channels].into_iter().chain(beside.copied()).collect()
}

/// Batch and channels.
pub(super) fn channels(x: &Tensor) -> Result<(usize, usize)> {
    match x.shape.as_slice() {
        &[batch, channels, ..] => Ok((batch, channels)),
        _ => Err(Error::invalid("a tensor without channels")),
    }
}

/// Numbers for the last of `N` axes, and another one for those before them; `None` if they are too many.
fn aligned<const N: usize>(
    given: impl Iterator<Item = Result<usize>>,
    otherwise: usize,
    count: usize,
) -> Result<Option<[usize; N]>> {
    let mut numbers = [otherwise; N];
    let Some(missing) = N.checked_sub(count) else { return Ok(None) };
    for (number, given) in numbers.iter_mut().skip(missing).zip(given) {
        *number = given?;
    }
    Ok(Some(numbers))
}

/// An attribute with a number for each axis.
pub(super) fn list<const N: usize>(call: &Call<'_>, name: &str, otherwise: usize) -> Result<[usize; N]> {
    let given = call.node.ints(name).unwrap_or_default();
    aligned(given.iter().map(|&number| extent(number)), otherwise, given.len())?
        .ok_or_else(|| Error::invalid(format!("{name} are not for {N} dimensions")))
}

/// What is before and after the image, for each axis.
fn pads<const N: usize>(call: &Call<'_>) -> Result<[[usize; N]; 2]> {
    let given = call.node.ints("pads").unwrap_or_default();
    let wrong = || Error::invalid(format!("pads are not for {N} dimensions"));
    let (before, after) = given.split_at(given.len() / 2);
    if before.len() != after.len() {
        return Err(wrong());
    }
    let side = |side: &[i64]| aligned(side.iter().map(|&pad| extent(pad)), 0, side.len())?.ok_or_else(wrong);
    Ok([side(before)?, side(after)?])
}

/// How a window of this size moves with the pads that are given.
pub(super) fn moves<const N: usize>(call: &Call<'_>, size: [usize; N]) -> Result<[Slide; N]> {
    let (stride, dilation): ([usize; N], [usize; N]) =
        (list(call, "strides", 1)?, list(call, "dilations", 1)?);
    let [before, after]: [[usize; N]; 2] = pads(call)?;
    let slide = |axis: usize| Slide {
        size: size[axis],
        stride: stride[axis],
        dilation: dilation[axis],
        before: before[axis],
        after: after[axis],
    };
    Ok(std::array::from_fn(slide))
}

/// How a window of this size moves over `from`, where pads may follow from the size of the output.
pub(super) fn slides<const N: usize>(
    call: &Call<'_>,
    size: [usize; N],
    from: [usize; N],
) -> Result<[Slide; N]> {
    let mode = call.node.text("auto_pad");
    let mut slides = moves(call, size)?;
    if !mode.starts_with("SAME") {
        return Ok(slides);
    }
    for (slide, from) in slides.iter_mut().zip(from) {
        let to = from.div_ceil(slide.stride.max(1));
        let all = (to.saturating_sub(1) * slide.stride + slide.span()).saturating_sub(from);
        *slide = slide.padded(all, mode == "SAME_LOWER");
    }
    Ok(slides)
}
