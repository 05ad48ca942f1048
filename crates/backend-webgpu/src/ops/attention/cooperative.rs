//! Attention on tensor cores: attention/cooperative and its tiles.

use std::fmt;

use backend_api::desc::AttentionDesc;
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType};

use super::{Params, Problem, Windows, fragments, has_natural_scores, params};
use crate::kernels::{KernelSource, MAX_CONSTANTS, Variant, kernel, native};
use crate::ops::has_room;
use crate::ops::op_context::linear_grid;
use crate::ops::shared::tensor_cores::{FRAGMENT, SUBGROUP};

pub(super) static COOPERATIVE: KernelSource = KernelSource {
    unrolled: native(fragments::attend),
    cooperative: true,
    subgroups: true,
    ..kernel!(
        native "attention/cooperative",
        libs: [
            WORKGROUP_TILES, SPECIAL, ATTENTION, ATTENTION_CONTIGUOUS, ATTENTION_VEC4S, ATTENTION_SEEN, ATTENTION_SINKS,
            HALVES, FRAGMENT_ELEMENTS,
        ],
        types: ["T"],
        constants: ["SUBGROUPS", "PARTS", "DIM", "BLOCK", "SLICE", "WIDE_KEYS", "DIM_SUBGROUPS", "LOOPED"],
        params: Params,
        reads: ["q: vec4<u32>", "k: vec4<u32>", "v: vec4<u32>", "mask: T", "lengths: u32", "sinks: f32"],
        writes: ["lse: f32", "o: vec4<T>"],
    )
};

/// How a workgroup's subgroups share its queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CooperativeTile {
    subgroups: usize,
    /// Fragments of queries of a subgroup.
    pub(super) parts: usize,
    /// Elements of the longest vectors.
    pub(super) dim: usize,
    /// Keys in workgroup memory, and of those that a subgroup works on at once.
    pub(super) block: usize,
    pub(super) slice: usize,
    /// Whether invocations read the keys' elements themselves.
    pub(super) wide_keys: bool,
    /// Subgroups that share the elements of vectors which are too long for the registers of one.
    pub(super) dim_subgroups: usize,
    /// Whether all slices of a block pass through a loop, where a longer text has some of them written out.
    pub(super) looped: bool,
}

/// The most keys over which looped tiles are preferred. On an H200, their text is compiled in half the time (0.68 s for heads of
/// 64, 1.37 written out). 16×12 heads take 25.8 µs over 197 keys and 24.9 written out, 4×32 heads 45.2 and 39.8 over 512.
const MOST_KEYS_LOOPED: usize = 256;

/// [`MOST_KEYS_LOOPED`] with a causal mask: 4×32 heads of 64 take 32.4 µs over 512 keys and 33.7 written out, 326 and 303 over
/// 2048.
const MOST_KEYS_LOOPED_CAUSAL: usize = 640;

impl CooperativeTile {
    /// Every tile; of those for vectors of one length, the best for many queries first.
    pub(super) const ALL: [Self; 14] = [
        Self::new([4, 2, 32], [64, 32]),
        Self::new([4, 2, 32], [64, 32]).with_loops(),
        Self::new([4, 1, 32], [64, 32]),
        Self::new([4, 2, 64], [64, 32]).with_wide_keys(),
        Self::new([4, 2, 64], [64, 32]).with_wide_keys().with_loops(),
        Self::new([4, 1, 64], [32, 32]),
        Self::new([4, 2, 96], [32, 16]),
        Self::new([4, 2, 96], [32, 16]).with_loops(),
        Self::new([4, 1, 96], [32, 32]),
        Self::new([8, 1, 128], [64, 32]),
        Self::new([8, 1, 128], [64, 32]).with_loops(),
        Self::new([4, 1, 128], [32, 32]),
        Self::new([8, 1, 256], [32, 32]),
        Self::new([8, 1, 512], [16, 16]).with_teams_of(2),
    ];

    const fn new([subgroups, parts, dim]: [usize; 3], [block, slice]: [usize; 2]) -> Self {
        Self { subgroups, parts, dim, block, slice, wide_keys: false, dim_subgroups: 1, looped: false }
    }

    const fn with_wide_keys(self) -> Self {
        Self { wide_keys: true, ..self }
    }

    const fn with_loops(self) -> Self {
        Self { looped: true, ..self }
    }

    const fn with_teams_of(self, dim_subgroups: usize) -> Self {
        Self { dim_subgroups, ..self }
    }

    /// The tile of a variant, from its constants.
    pub(super) fn from_constants(constants: &[u32; MAX_CONSTANTS]) -> Self {
        let &[subgroups, parts, dim, block, slice, wide_keys, dim_subgroups, looped, ..] = constants;
        let [subgroups, parts, dim] = [subgroups, parts, dim].map(|value| value as usize);
        Self {
            wide_keys: wide_keys == 1,
            dim_subgroups: dim_subgroups as usize,
            looped: looped == 1,
            ..Self::new([subgroups, parts, dim], [block as usize, slice as usize])
        }
    }

    /// Subgroups or teams of them, which have queries of their own.
    const fn teams(self) -> usize {
        self.subgroups / self.dim_subgroups
    }

    /// Elements of the vectors that a subgroup works on.
    pub(super) const fn range(self) -> usize {
        self.dim / self.dim_subgroups
    }

    /// Queries of a workgroup.
    pub(super) const fn queries(self) -> usize {
        self.teams() * self.parts * FRAGMENT
    }

    /// How many groups of eight elements of the keys, and of the values, each invocation fetches for a block.
    pub(super) const fn fetches(self) -> usize {
        self.block * self.dim / 8 / (self.subgroups * SUBGROUP)
    }

    /// Rows of workgroup memory for values, and for keys that aren't wide.
    const fn rows(self) -> usize {
        if self.wide_keys { self.block } else { 2 * self.block }
    }

    /// Fragments of a subgroup's range of each row of the output that pass through workgroup memory at once: fewer
    /// than there are where it has fewer rows than the output.
    pub(super) const fn pass_fragments(self) -> usize {
        let passes = (self.teams() * FRAGMENT).div_ceil(self.rows());
        (self.range() / FRAGMENT).div_ceil(passes)
    }

    /// Whether keys and values are staged alternately, through one set of registers: where the output leaves too
    /// few registers for both.
    pub(super) const fn stages_alternately(self) -> bool {
        self.range() > 128
    }

    /// Whether an invocation moves the same group of eight elements of each row, so that it can go from block
    /// to block by adding.
    pub(super) const fn keeps_column(self) -> bool {
        (self.subgroups * SUBGROUP).is_multiple_of(self.dim / 8)
    }

    /// Bytes of workgroup memory: keys and values, or output; the sums of weights of a part; and the products of a
    /// slice that teams exchange.
    const fn workgroup_bytes(self) -> usize {
        let (queries, vec8s) = (self.teams() * FRAGMENT, self.dim / 8);
        let keys = if self.wide_keys { self.block * (vec8s + (12 - vec8s % 8) % 8) * 16 } else { 16 };
        let rows = self.rows() * (self.dim + 8) * 2;
        let output = queries * (self.dim_subgroups * self.pass_fragments() * FRAGMENT + 8) * 2;
        let products = self.parts * self.slice * self.subgroups * FRAGMENT * size_of::<f32>();
        let products = if self.dim_subgroups > 1 { products } else { 16 };
        keys + if rows > output { rows } else { output } + queries * size_of::<f32>() + products
    }

    pub(super) fn fits(self, limits: &wgpu::Limits) -> bool {
        has_room(limits, self.subgroups * SUBGROUP, self.workgroup_bytes())
    }

    /// The tiles for these heads on so many compute units, the best first.
    pub(super) fn candidates(desc: &AttentionDesc, compute_units: usize) -> impl Iterator<Item = Self> {
        let &AttentionDesc { head_dim, seq_q, seq_kv, .. } = desc;
        let heads = desc.heads.saturating_mul(desc.batch);
        let long_enough = move |tile: &Self| tile.dim >= head_dim;
        let dim = Self::ALL.into_iter().filter(long_enough).map(|tile| tile.dim).min().unwrap_or_default();
        let has_smaller = move |tile: &Self| {
            let is_smaller = |other: &Self| other.dim == dim && other.queries() < tile.queries();
            Self::ALL.iter().any(is_smaller)
        };
        let occupies = move |tile: &Self| {
            !has_smaller(tile) || seq_q.div_ceil(tile.queries()).saturating_mul(heads) >= compute_units
        };
        let most_looped = if desc.causal { MOST_KEYS_LOOPED_CAUSAL } else { MOST_KEYS_LOOPED };
        // What is written out is for scores that are products.
        let is_looped = has_natural_scores(desc) || seq_kv <= most_looped;
        let forms = move |tile: Self| {
            let [first, second] =
                if is_looped { [tile.with_loops(), tile] } else { [tile, tile.with_loops()] };
            [first, second].into_iter().filter(|form| Self::ALL.contains(form))
        };
        Self::ALL
            .into_iter()
            .filter(move |tile| !tile.looped && tile.dim == dim && occupies(tile))
            .flat_map(forms)
    }

    pub(super) fn variant(self) -> Variant {
        let Self { subgroups, parts, dim, block, slice, wide_keys, dim_subgroups, looped } = self;
        let [wide_keys, looped] = [wide_keys, looped].map(usize::from);
        let sizes = [subgroups, parts, dim, block, slice, wide_keys, dim_subgroups, looped];
        let constants = sizes.map(|value| value as u32);
        Variant::new(&COOPERATIVE, [DType::F16], constants).with_rolled_loops()
    }
}

/// Such as `cooperative/128x64x64p2-looped`: queries, keys, the longest vectors, and the parts of a subgroup.
impl fmt::Display for CooperativeTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cooperative/{}x{}x{}p{}", self.queries(), self.block, self.dim, self.parts)?;
        f.write_str(if self.looped { "-looped" } else { "" })
    }
}

pub(super) fn variants() -> Vec<Variant> {
    CooperativeTile::ALL.map(CooperativeTile::variant).into()
}

pub(super) fn run(problem: Problem<'_>, tile: CooperativeTile) -> BackendResult<()> {
    let Problem { ctx, op, desc, windows } = problem;
    let blocks = desc.seq_q.div_ceil(tile.queries());
    let tiles = checked_product(op, "tiles", &[blocks, desc.heads, desc.batch])?;
    let params = params(problem, tiles, 1)?;
    let Windows { q, k, v, mask, lengths, sinks, lse, o, .. } = windows;
    let inputs = [q, k, v, mask, lengths, sinks, lse];
    ctx.launch(op, &tile.variant(), &inputs, o, &params, linear_grid(op, tiles)?)
}

#[cfg(test)]
mod tests {
    use backend_api::desc::AttentionShape;

    use super::*;
    use crate::device::h200;
    use crate::ops::plans::bounds::assert_room;

    #[test]
    fn workgroups_take_what_their_text_says() {
        for tile in CooperativeTile::ALL {
            // Of memory that a kernel leaves out, a vector is counted.
            assert_room(&tile.variant(), 32, |limits| tile.fits(limits));
        }
    }

    #[test]
    fn every_tile_is_whole_and_fits() {
        // What NVIDIA's Vulkan driver offers.
        let nvidia = wgpu::Limits {
            max_compute_workgroup_storage_size: 48 << 10,
            max_compute_invocations_per_workgroup: 1024,
            max_compute_workgroup_size_x: 1024,
            ..wgpu::Limits::default()
        };
        for tile in CooperativeTile::ALL {
            assert!(tile.fits(&nvidia), "{tile}");
            let threads = tile.subgroups * SUBGROUP;
            assert_eq!((tile.dim % FRAGMENT, tile.block * tile.dim / 8 % threads), (0, 0), "{tile}");
            assert_eq!((tile.block % tile.slice, tile.slice % FRAGMENT), (0, 0), "{tile}");
            assert!(tile.keeps_column() || !(tile.wide_keys || tile.stages_alternately()), "{tile}");
            assert!(tile.block == tile.slice || !tile.stages_alternately(), "{tile}");
            assert!(tile.dim.is_multiple_of(2 * FRAGMENT) || !tile.wide_keys, "{tile}");
            // Products are exchanged where keys and values are staged alternately, and passes are whole.
            let passes = (tile.teams() * FRAGMENT).div_ceil(tile.rows());
            let is_whole = tile.range() == passes * tile.pass_fragments() * FRAGMENT;
            assert!(tile.dim_subgroups == 1 || tile.stages_alternately() && is_whole, "{tile}");
        }
    }

    #[test]
    fn tiles_are_smaller_where_there_is_little_to_do() {
        let first = |head_dim, seq_q, heads| {
            let mut desc = AttentionDesc::new(
                DType::F16,
                0,
                0,
                0,
                0,
                AttentionShape { batch: 1, heads, seq_q, seq_kv: seq_q, head_dim },
            );
            desc.causal = seq_q == 512;
            CooperativeTile::candidates(&desc, h200::COMPUTE_UNITS).next().map(|tile| tile.to_string())
        };
        assert_eq!(first(64, 197, 192).as_deref(), Some("cooperative/128x64x64p2-looped"));
        assert_eq!(first(32, 512, 128).as_deref(), Some("cooperative/128x64x32p2-looped"), "causal");
        assert_eq!(first(32, 513, 128).as_deref(), Some("cooperative/128x64x32p2"));
        assert_eq!(first(64, 2048, 128).as_deref(), Some("cooperative/128x64x64p2"));
        assert_eq!(first(64, 64, 128).as_deref(), Some("cooperative/64x32x64p1"));
        assert_eq!(first(72, 64, 1).as_deref(), Some("cooperative/64x32x96p1"));
        assert_eq!(first(136, 2048, 128).as_deref(), Some("cooperative/128x32x256p1"));
        // There is no smaller tile.
        assert_eq!(first(136, 64, 1).as_deref(), Some("cooperative/128x32x256p1"));
        assert_eq!(first(264, 2048, 128).as_deref(), Some("cooperative/64x16x512p1"));
        assert_eq!(first(520, 2048, 128), None);
    }
}
