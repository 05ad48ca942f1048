//! Tensors of a run: on the host, on the device, or on both.

mod elements;

use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use backend_api::ComputeBackend;
use backend_api::desc::TensorDesc;
use backend_api::owned::Buffer;

use self::elements::{Elements, written};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::numbers::Numbers;
use crate::ops::shape::{packed_strides, places, reshaped_strides};
use crate::workspace::{Block, Workspace};

/// A tensor: packed, or on the device a strided view of a packed one. Its elements never change, so tensors
/// share them.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    /// The element type.
    pub(crate) kind: Kind,
    /// The extents, outermost first.
    pub(crate) shape: Vec<usize>,
    /// Where the elements lie if they aren't packed.
    view: Option<Arc<View>>,
    /// The packed elements, or those of which this is a view.
    elements: Arc<Elements>,
}

/// Places of elements in another tensor's.
#[derive(Debug)]
struct View {
    offset: usize,
    strides: Vec<usize>,
    /// A packed copy, made when somebody needs one.
    packed: OnceLock<Arc<Elements>>,
}

impl Tensor {
    /// A tensor on the host. There must be as many numbers as the shape has elements.
    pub(crate) fn host(kind: Kind, shape: Vec<usize>, numbers: Numbers) -> Result<Self> {
        let count = elements(&shape)?;
        if count != numbers.len() {
            return Err(Error::invalid(format!("{} numbers for the shape {shape:?}", numbers.len())));
        }
        Ok(Self::of(kind, shape, Elements { host: numbers.into(), ..Elements::new(count) }))
    }

    /// A vector of whole numbers on the host.
    pub(crate) fn vector(numbers: Vec<i64>) -> Self {
        let count = numbers.len();
        let host = Numbers::Int(numbers).into();
        Self::of(Kind::I64, vec![count], Elements { host, ..Elements::new(count) })
    }

    /// A tensor on the device, in the element type that the device has for `kind`.
    fn device(kind: Kind, shape: Vec<usize>, block: Arc<Block>) -> Self {
        let elements = Elements { device: block.into(), ..Elements::new(shape.iter().product()) };
        Self::of(kind, shape, elements)
    }

    fn of(kind: Kind, shape: Vec<usize>, elements: Elements) -> Self {
        Self { kind, shape, view: None, elements: Arc::new(elements) }
    }

    /// A tensor on the device for an operation to write.
    pub(crate) fn empty(memory: Workspace<'_>, kind: Kind, shape: Vec<usize>) -> Result<Self> {
        let block = memory.result(elements(&shape)? * kind.dtype().size())?;
        Ok(Self::device(kind, shape, Arc::new(block)))
    }

    /// A tensor without elements, of which only the shape may be asked.
    pub(crate) fn shell(&self) -> Self {
        Self::of(self.kind, self.shape.clone(), Elements::new(self.count()))
    }

    /// The elements of a graph's output, for as long as the result lives: `holder` keeps the graph from
    /// running.
    pub(crate) fn lent(&self, holder: &Arc<dyn Any + Send + Sync>) -> Self {
        let lend =
            |of: &Arc<Block>| Arc::new(Block::Lent { of: Arc::clone(of), _holder: Arc::clone(holder) });
        match self.elements.device.get() {
            Some(block) => Self::device(self.kind, self.shape.clone(), lend(block)),
            None => self.clone(),
        }
    }

    /// Uploads a tensor whose bytes the host and the device store alike.
    pub(crate) fn upload(
        backend: &Arc<dyn ComputeBackend>,
        kind: Kind,
        shape: Vec<usize>,
        bytes: &[u8],
    ) -> Result<Self> {
        Ok(Self::device(kind, shape, Arc::new(written(Workspace::new(backend), bytes)?)))
    }

    /// The number of elements.
    pub(crate) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// The number of dimensions.
    pub(crate) fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Whether the numbers are in host memory already.
    pub(crate) fn is_on_host(&self) -> bool {
        self.packed_elements().is_some_and(|elements| elements.host.get().is_some())
    }

    /// The elements if they are packed.
    fn packed_elements(&self) -> Option<&Arc<Elements>> {
        match &self.view {
            Some(view) => view.packed.get(),
            None => Some(&self.elements),
        }
    }

    /// Elements at `offset + Σ index·stride` of those that this tensor has or is a view of.
    pub(crate) fn viewed(&self, offset: usize, shape: Vec<usize>, strides: Vec<usize>) -> Self {
        let count: usize = shape.iter().product();
        if count == 0 {
            return Self::of(self.kind, shape, self.elements.none(self.kind));
        }
        // Strides along which nothing is walked have no meaning.
        let packed = packed_strides(&shape);
        let is_step = |&(extent, ..): &(&usize, &usize, &usize)| *extent != 1;
        let mut steps = shape.iter().zip(&strides).zip(&packed).map(|((e, s), p)| (e, s, p)).filter(is_step);
        let is_whole =
            offset == 0 && count == self.elements.count && steps.all(|(_, stride, packed)| stride == packed);
        // A view of numbers on the host isn't there itself, also where it is undone: a capture knows by that which values
        // come from the host.
        let is_whole = is_whole && (self.view.is_none() || self.elements.host.get().is_none());
        let view = (!is_whole).then(|| Arc::new(View { offset, strides, packed: OnceLock::new() }));
        Self { kind: self.kind, shape, view, elements: Arc::clone(&self.elements) }
    }

    /// All elements that this tensor has or is a view of, as a vector.
    pub(crate) fn all_elements(&self) -> Self {
        Self {
            kind: self.kind,
            shape: vec![self.elements.count],
            view: None,
            elements: Arc::clone(&self.elements),
        }
    }

    /// Elements from one index to the next, for each dimension.
    pub(crate) fn strides(&self) -> Vec<usize> {
        self.view.as_ref().map_or_else(|| packed_strides(&self.shape), |view| view.strides.clone())
    }

    /// Elements before the first one.
    pub(crate) fn offset(&self) -> usize {
        self.view.as_ref().map_or(0, |view| view.offset)
    }

    /// Whether it is a view whose elements aren't packed.
    pub(crate) const fn is_view(&self) -> bool {
        self.view.is_some()
    }

    /// The packed copy of a view, which `copy` makes if there is none; the tensor itself if it is packed.
    pub(crate) fn packed(&self, copy: impl FnOnce() -> Result<Self>) -> Result<Self> {
        let Some(view) = &self.view else { return Ok(self.clone()) };
        let elements = match view.packed.get() {
            Some(elements) => elements,
            None => {
                let elements = copy()?.elements;
                view.packed.get_or_init(|| elements)
            }
        };
        Ok(Self { kind: self.kind, shape: self.shape.clone(), view: None, elements: Arc::clone(elements) })
    }

    /// Whether the device has the elements already.
    pub(crate) fn is_on_device(&self) -> bool {
        self.elements.device.get().is_some()
    }

    /// Whether the numbers were asked for since the last call of this.
    pub(crate) fn take_was_read(&self) -> bool {
        self.elements.was_read.swap(false, Ordering::Relaxed)
    }

    /// Whether it is a view of elements that are in host memory too.
    pub(crate) fn views_host(&self) -> bool {
        self.view.is_some() && self.elements.host.get().is_some()
    }

    /// The numbers, read from the device if need be.
    pub(crate) fn numbers(&self) -> Result<&Numbers> {
        let elements = match &self.view {
            None => &self.elements,
            Some(view) => match view.packed.get() {
                Some(elements) => elements,
                None => {
                    let elements = Arc::new(self.picked(view)?);
                    view.packed.get_or_init(|| elements)
                }
            },
        };
        for elements in [elements, &self.elements] {
            elements.was_read.store(true, Ordering::Relaxed);
        }
        if let Some(numbers) = elements.host.get() {
            return Ok(numbers);
        }
        let mut bytes = vec![0; self.count() * self.kind.dtype().size()];
        elements.read(&mut bytes)?;
        Ok(elements.host.get_or_init(|| Numbers::decode_device(self.kind, &bytes)))
    }

    /// The elements of a view, on the host.
    fn picked(&self, view: &View) -> Result<Elements> {
        let strides: Vec<isize> = view.strides.iter().map(|&stride| stride as isize).collect();
        let places = places(&self.shape, view.offset as isize, &strides);
        let host = match self.elements.host.get() {
            Some(all) => all.pick(places)?,
            None => {
                let mut bytes = vec![0; self.elements.count * self.kind.dtype().size()];
                self.elements.read(&mut bytes)?;
                Numbers::decode_device(self.kind, &bytes).pick(places)?
            }
        };
        Ok(Elements { host: host.into(), ..Elements::new(self.count()) })
    }

    /// The numbers as whole numbers.
    pub(crate) fn ints(&self) -> Result<Vec<i64>> {
        Ok(self.numbers()?.ints())
    }

    /// The handle of the packed elements in the backend's memory, uploaded if need be.
    pub(crate) fn ptr(&self, memory: Workspace<'_>) -> Result<u64> {
        let packed =
            self.packed_elements().ok_or_else(|| Error::invalid("a view where elements are packed"))?;
        packed.ptr(self.kind, memory)
    }

    /// The handle of the elements that this tensor has or is a view of.
    pub(crate) fn base_ptr(&self, memory: Workspace<'_>) -> Result<u64> {
        self.elements.ptr(self.kind, memory)
    }

    /// Writes other numbers of the same shape over elements that were uploaded.
    pub(crate) fn upload_again(&self, numbers: &Numbers) -> Result<()> {
        let buffer = self.buffer().ok_or_else(|| Error::invalid("a tensor without memory"))?;
        let bytes = numbers.encode_device(self.kind);
        if !bytes.is_empty() {
            buffer.backend().copy_htod(buffer.ptr(), &bytes)?;
        }
        Ok(())
    }

    /// Whether the elements are there only while a graph runs.
    pub(crate) fn is_leased(&self) -> bool {
        self.elements.device.get().is_some_and(|block| block.is_leased())
    }

    /// Bytes of the elements on the device, in whole words.
    pub(crate) fn device_bytes(&self) -> usize {
        (self.count() * self.kind.dtype().size()).next_multiple_of(4)
    }

    /// The bytes on the device, as they are there.
    pub(crate) fn device_bytes_read(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.device_bytes()];
        self.elements.read(&mut bytes)?;
        Ok(bytes)
    }

    /// The elements' memory on the device.
    pub(crate) fn buffer(&self) -> Option<&Buffer> {
        self.elements.device.get()?.buffer()
    }

    /// The tensor in `backend`'s memory, through the host if it lies on another device.
    pub(crate) fn on(&self, backend: &Arc<dyn ComputeBackend>) -> Result<Self> {
        match self.buffer() {
            Some(buffer) if !Arc::ptr_eq(buffer.backend(), backend) => {
                Self::host(self.kind, self.shape.clone(), self.numbers()?.clone())
            }
            _ => Ok(self.clone()),
        }
    }

    /// The descriptor of the elements in the backend's memory.
    pub(crate) fn desc(&self, memory: Workspace<'_>) -> Result<TensorDesc<'_>> {
        let (ptr, dtype) = (self.base_ptr(memory)?, self.kind.dtype());
        Ok(match &self.view {
            Some(view) => {
                TensorDesc::strided(ptr, dtype, &self.shape, &view.strides).with_offset(view.offset)
            }
            None => TensorDesc::packed(ptr, dtype, &self.shape),
        })
    }

    /// The tensor's elements in another shape, which must have as many. A view is packed before, unless its
    /// strides allow the shape.
    pub(crate) fn reshaped(&self, shape: Vec<usize>) -> Result<Self> {
        let wrong = || Error::invalid(format!("{:?} can't be reshaped to {shape:?}", self.shape));
        if elements(&shape)? != self.count() {
            return Err(wrong());
        }
        if self.view.is_none() {
            return Ok(Self { shape, ..self.clone() });
        }
        let strides = reshaped_strides(&self.shape, &self.strides(), &shape).ok_or_else(wrong)?;
        Ok(self.viewed(self.offset(), shape, strides))
    }

    /// The tensor's bytes as elements of another kind.
    pub(crate) fn reinterpreted(&self, kind: Kind, shape: Vec<usize>) -> Result<Self> {
        let mut bytes = vec![0; self.count() * self.kind.size()];
        self.read(&mut bytes)?;
        Self::host(kind, shape, Numbers::decode(kind, &bytes))
    }

    /// The bits of a packed tensor on the device as elements of another kind of the same size, in the same
    /// memory.
    pub(crate) fn with_kind(&self, kind: Kind) -> Result<Self> {
        match self.elements.device.get() {
            Some(block) if self.view.is_none() && self.kind.dtype().size() == kind.dtype().size() => {
                Ok(Self::device(kind, self.shape.clone(), Arc::clone(block)))
            }
            _ => Err(Error::invalid(format!("{:?} that can't be read as {kind:?}", self.kind))),
        }
    }

    /// Writes the elements as ONNX Runtime stores them; `bytes` has exactly their size.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> Result<()> {
        if bytes.len() != self.count() * self.kind.size() {
            return Err(Error::invalid(format!("{} bytes for the shape {:?}", bytes.len(), self.shape)));
        }
        if !self.is_on_host() && self.view.is_none() && self.kind.is_same_on_device() {
            return self.elements.read(bytes);
        }
        bytes.copy_from_slice(&self.numbers()?.encode(self.kind));
        Ok(())
    }

    /// The products of the extents before and behind an axis.
    pub(crate) fn around(&self, axis: usize) -> [usize; 2] {
        [self.shape.iter().take(axis).product(), self.shape.iter().skip(axis + 1).product()]
    }
}

/// The number of elements of a shape.
pub(crate) fn elements(shape: &[usize]) -> Result<usize> {
    let product = shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
    product
        .filter(|&count| count <= isize::MAX as usize / 8)
        .ok_or_else(|| Error::invalid(format!("the shape {shape:?} is too large")))
}
