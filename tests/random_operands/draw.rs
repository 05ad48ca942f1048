//! Random extents, numbers and memory.

use backend_api::DType;
use backend_api::kv::KvFormat;
use conformance::Rng;
use half::f16;

/// An operand's content; its handle is its number from 1 on.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    /// Bytes of an element, to a multiple of which it is aligned.
    pub(super) item: usize,
}

/// What a case draws its numbers and its memory from.
#[derive(Debug)]
pub(super) struct Draw {
    rng: Rng,
    /// Bytes that a kernel can bind.
    binding: usize,
    pub(super) buffers: Vec<Buffer>,
}

impl Draw {
    /// Numbers that depend on nothing but the name of the case.
    pub(super) fn new(name: &str, binding: usize) -> Self {
        Self { rng: Rng::from_name(name), binding, buffers: Vec::new() }
    }

    /// Other numbers, without memory.
    pub(super) fn fork(&self) -> Self {
        Self { rng: self.rng.fork(), binding: self.binding, buffers: Vec::new() }
    }

    /// A number below `n`; 0 if there is none.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.rng.below(n.max(1))
    }

    /// A number from 1 to `n`.
    pub(super) fn up_to(&mut self, n: usize) -> usize {
        1 + self.below(n)
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.rng.one_in(n)
    }

    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        self.rng.pick(choices)
    }

    pub(super) fn dtype(&mut self) -> DType {
        self.pick(&[DType::F32, DType::F32, DType::F16, DType::I32, DType::U32])
    }

    pub(super) fn float(&mut self) -> DType {
        self.pick(&[DType::F32, DType::F32, DType::F16])
    }

    /// Elements of an operand: fewer than can be bound, or up to some times as many.
    pub(super) fn elements(&mut self, dtype: DType) -> usize {
        let most = self.binding / dtype.size();
        match self.below(5) {
            0 => self.up_to(most),
            1 => most + self.below(70),
            2 | 3 => self.up_to(3 * most),
            _ => self.up_to(5 * most),
        }
    }

    /// Extents of about `total` elements together.
    pub(super) fn extents<const N: usize>(&mut self, total: usize) -> [usize; N] {
        let mut rest = total.max(1);
        let mut extents = [1; N];
        for extent in &mut extents[1..] {
            // As often short as long.
            let most = if self.one_in(3) { 5 } else { rest };
            let bits = self.below(most.min(rest).ilog2() as usize + 1) as u32;
            *extent = ((1 << bits) + self.below(1 << bits)).min(rest);
            rest /= *extent;
        }
        extents[0] = rest.max(1);
        for i in (1..N).rev() {
            let other = self.below(i + 1);
            extents.swap(i, other);
        }
        extents
    }

    /// A number between −2 and 2.
    fn number(&mut self) -> f32 {
        (self.rng.next_u64() >> 40) as f32 / (1 << 22) as f32 - 2.0
    }

    /// Memory of `n` numbers, most of them between −2 and 2.
    pub(super) fn memory(&mut self, dtype: DType, n: usize) -> u64 {
        let specials = self.one_in(25);
        let mut bytes = Vec::with_capacity(n * dtype.size());
        for _ in 0..n {
            let special = if specials && self.one_in(900) {
                Some(self.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]))
            } else {
                None
            };
            match dtype {
                DType::F16 => {
                    let number = special.unwrap_or_else(|| self.number());
                    bytes.extend(f16::from_f32(number).to_le_bytes());
                }
                DType::F32 => bytes.extend(special.unwrap_or_else(|| self.number()).to_le_bytes()),
                _ => bytes
                    .extend((self.below(19) as i32 - if dtype == DType::I32 { 9 } else { 0 }).to_le_bytes()),
            }
        }
        self.insert(bytes, dtype.size())
    }

    /// Memory of `n` numbers from a half to 2.
    pub(super) fn positive(&mut self, dtype: DType, n: usize) -> u64 {
        let numbers: Vec<f32> = (0..n).map(|_| self.number().abs().max(0.5)).collect();
        let bytes = match dtype {
            DType::F16 => numbers.into_iter().flat_map(|x| f16::from_f32(x).to_le_bytes()).collect(),
            _ => numbers.into_iter().flat_map(f32::to_le_bytes).collect(),
        };
        self.insert(bytes, dtype.size())
    }

    /// Memory of `n` numbers of u32 below `end`, a few of them beyond, and some of them negative.
    pub(super) fn indices(&mut self, n: usize, end: usize) -> u64 {
        let index = |draw: &mut Self| match draw.below(40) {
            0 => u32::MAX - draw.below(3) as u32,
            1 => end as u32 + draw.below(3) as u32,
            2 => end.saturating_sub(1) as u32,
            _ => draw.below(end) as u32,
        };
        let bytes = (0..n).flat_map(|_| index(self).to_le_bytes()).collect();
        self.insert(bytes, 4)
    }

    /// Bytes of any value.
    pub(super) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.below(256) as u8).collect()
    }

    /// Memory of `n` elements of keys or values in blocks of Q8_0.
    pub(super) fn blocks(&mut self, n: usize) -> u64 {
        let mut bytes = self.bytes(n.div_ceil(KvFormat::BLOCK) * KvFormat::BLOCK_BYTES);
        for block in bytes.chunks_exact_mut(KvFormat::BLOCK_BYTES) {
            let scale = f16::from_f32(self.up_to(255) as f32 / 16384.0);
            block[..2].copy_from_slice(&scale.to_le_bytes());
            block[2..4].fill(0);
        }
        self.insert(bytes, 4)
    }

    pub(super) fn insert(&mut self, bytes: Vec<u8>, item: usize) -> u64 {
        self.buffers.push(Buffer { bytes, item });
        self.buffers.len() as u64
    }

    /// Nothing, or what is drawn.
    pub(super) fn maybe<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.one_in(2) { Some(draw(self)) } else { None }
    }
}
