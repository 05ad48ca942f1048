//! Pieces of the keys for attention/flash, where a workgroup for each tile of queries leaves a part of the device idle.

use backend_api::desc::AttentionDesc;

use super::flash::{FlashTile, Workgroups};
use super::pieces::Division;
use crate::context::MAX_GROUPS;
use crate::device::h200;
use crate::ops::shared::piece_lengths::{FEW, piece_lengths};

/// The most blocks of a piece for which parameters have room.
const MAX_BLOCKS: usize = u16::MAX as usize;

/// The keys of each tile of queries in pieces, of which the last may be shorter than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlashPieces {
    /// Blocks of each but the last.
    pub(super) length: usize,
    pub(super) count: usize,
}

impl FlashPieces {
    /// More pieces than one; `None` where a division makes no more.
    pub(super) fn new(tile: FlashTile, desc: &AttentionDesc, division: Division) -> Option<Self> {
        let blocks = desc.seq_kv.div_ceil(tile.block());
        let length = match division {
            Division::Pieces(pieces) => blocks.div_ceil(pieces.max(1)),
            Division::Blocks(length) => length,
        };
        // A row's parts are counted in 16 bits too.
        let length = length.clamp(1, MAX_BLOCKS).max(blocks.div_ceil(MAX_GROUPS as usize));
        (length < blocks).then(|| Self { length, count: blocks.div_ceil(length) })
    }

    /// The tile of vectors of a tile's length, its pieces and their nanoseconds, where workgroups for these end clearly
    /// earlier than as many as there are tiles of queries: these leave a part of the device idle, for as long as one takes
    /// that goes through all keys.
    pub(super) fn choose(
        whole: FlashTile,
        limits: &wgpu::Limits,
        desc: &AttentionDesc,
        compute_units: usize,
        have_room: impl Fn(Self) -> bool,
    ) -> Option<(FlashTile, Self, f64)> {
        const GAIN: f64 = 0.9;
        /// What each piece has to win, as its parts take memory.
        const PIECE: f64 = 1e-3;
        // Of a window, pieces behind and before it would be empty; of a mask over positions, half of them.
        if desc.causal || desc.window.is_some() {
            return None;
        }
        let least = whole.nanoseconds(desc, compute_units) * GAIN;
        let tiles = FlashTile::ALL.into_iter();
        let weight = |pieces: Self, time: f64| time * (1.0 + PIECE * pieces.count as f64);
        tiles
            .filter(|tile| tile.head_dim() == whole.head_dim() && tile.fits(limits, desc.dtype))
            .filter(|tile| tile.balanced_nanoseconds(desc, compute_units) < least)
            .flat_map(|tile| Self::candidates(tile, desc).map(move |pieces| (tile, pieces)))
            .map(|(tile, pieces)| (tile, pieces, pieces.nanoseconds(tile, desc, compute_units)))
            .filter(|&(_, pieces, time)| time < least && have_room(pieces))
            .min_by(|a, b| weight(a.1, a.2).total_cmp(&weight(b.1, b.2)))
    }

    /// Few pieces, of one length or with a last one of a quarter, a half or three quarters of it, and many for few queries.
    fn candidates(tile: FlashTile, desc: &AttentionDesc) -> impl Iterator<Item = Self> + use<'_> {
        const MANY: [usize; 8] = [10, 12, 16, 20, 24, 32, 48, 64];
        let blocks = desc.seq_kv.div_ceil(tile.block());
        let lengths = piece_lengths(blocks, 1, FEW.chain(MANY.map(|pieces| 4 * pieces)));
        lengths.filter_map(move |length| Self::new(tile, desc, Division::Blocks(length)))
    }

    /// The nanoseconds that an H200 takes, with the launch that puts the parts together.
    fn nanoseconds(self, tile: FlashTile, desc: &AttentionDesc, compute_units: usize) -> f64 {
        let rows = desc.heads.saturating_mul(desc.batch).saturating_mul(desc.seq_q);
        let sums = rows.saturating_mul(self.count).saturating_mul(desc.v_head_dim);
        let last = desc.seq_kv.div_ceil(tile.block()) - self.length * (self.count - 1);
        let tiles = tile.tiles(desc);
        let longer = Workgroups { blocks: self.length, count: tiles.saturating_mul(self.count - 1) };
        tile.nanoseconds_of(desc, longer, Workgroups { blocks: last, count: tiles }, compute_units)
            + (h200::COMBINING_LAUNCH + h200::partial_sums(sums, 250, compute_units)) as f64
    }
}

#[cfg(test)]
mod tests {
    use backend_api::DType;
    use backend_api::desc::AttentionShape;

    use super::*;

    fn encoder([batch, heads, seq, head_dim]: [usize; 4]) -> AttentionDesc {
        let shape = AttentionShape { batch, heads, seq_q: seq, seq_kv: seq, head_dim };
        AttentionDesc::new(DType::F32, 0, 0, 0, 0, shape)
    }

    #[test]
    fn pieces_cover_all_blocks_and_none_is_empty() {
        let tile = FlashTile::ALL[3];
        assert_eq!(tile.block(), 64);
        let pieces = |seq, division| {
            let pieces = FlashPieces::new(tile, &encoder([1, 1, seq, 64]), division);
            pieces.map(|FlashPieces { length, count }| (length, count))
        };
        let of_1500 = [0, 1, 2, 5, 7, 24, 1000].map(|count| pieces(1500, Division::Pieces(count)));
        assert_eq!(
            of_1500,
            [None, None, Some((12, 2)), Some((5, 5)), Some((4, 6)), Some((1, 24)), Some((1, 24))]
        );
        let of_1500 = [0, 7, 23, 24, 25].map(|length| pieces(1500, Division::Blocks(length)));
        assert_eq!(of_1500, [Some((1, 24)), Some((7, 4)), Some((23, 2)), None, None]);
        assert_eq!(
            [0, 1, 64, 65].map(|seq| pieces(seq, Division::Pieces(8))),
            [None, None, None, Some((1, 2))]
        );
        // Lengths and counts that have no room.
        assert_eq!(pieces(64 << 20, Division::Blocks(1)), Some((17, 61_681)));
        assert_eq!(pieces(64 << 20, Division::Blocks(1 << 19)), Some((65_535, 17)));
    }

    #[test]
    fn keys_are_split_where_queries_do_not_fill_the_device() {
        let large = wgpu::Limits { max_compute_workgroup_storage_size: 49152, ..wgpu::Limits::default() };
        let chosen = |desc: &AttentionDesc, units| {
            FlashPieces::choose(FlashTile::choose(&large, desc, units), &large, desc, units, |_| true)
        };
        // An encoder of speech has 144 tiles of 64 queries for 132 compute units.
        let speech = encoder([1, 6, 1500, 64]);
        assert!(chosen(&speech, h200::COMPUTE_UNITS).is_some());
        let (mut causal, mut windowed) = (speech, speech);
        causal.causal = true;
        windowed.window = Some(100);
        for (whole, why) in [
            (encoder([4, 32, 2048, 64]), "many rounds"),
            (encoder([1, 6, 64, 64]), "one block of keys"),
            (causal, "a causal mask"),
            (windowed, "a window"),
        ] {
            assert!(chosen(&whole, h200::COMPUTE_UNITS).is_none(), "{why}");
        }
        assert!(chosen(&speech, 8).is_none(), "a small device is filled");
    }

    /// Where the best pieces have no room, fewer do; and where many win next to nothing, few are chosen.
    #[test]
    fn pieces_have_to_fit_and_to_be_worth_their_memory() {
        let large = wgpu::Limits { max_compute_workgroup_storage_size: 49152, ..wgpu::Limits::default() };
        let count = |desc: &AttentionDesc, most: usize| {
            let whole = FlashTile::choose(&large, desc, h200::COMPUTE_UNITS);
            let fits = |pieces: FlashPieces| pieces.count <= most;
            FlashPieces::choose(whole, &large, desc, h200::COMPUTE_UNITS, fits)
                .map(|(_, pieces, _)| pieces.count)
        };
        let mut few = encoder([2, 3, 9, 64]);
        few.seq_kv = 3000;
        let best = count(&few, usize::MAX).unwrap();
        assert!(best > 20 && count(&few, best - 1).is_some_and(|count| count > 2 && count < best), "{best}");
        assert_eq!(count(&few, 1), None);
        let mut long = encoder([1, 2, 4096, 32]);
        long.seq_kv = 100_000;
        assert!(count(&long, usize::MAX).is_some_and(|count| count < 10));
    }

    /// On an NVIDIA H200, 1×16×577×577×64 takes 73 µs so, and 94 with pieces of 7 and 3 for 64 queries, of which a unit has up
    /// to two long ones beside a short one.
    #[test]
    fn short_last_pieces_that_begin_with_the_others_share_their_units() {
        let large = wgpu::Limits { max_compute_workgroup_storage_size: 49152, ..wgpu::Limits::default() };
        let desc = encoder([1, 16, 577, 64]);
        let whole = FlashTile::choose(&large, &desc, h200::COMPUTE_UNITS);
        let chosen = FlashPieces::choose(whole, &large, &desc, h200::COMPUTE_UNITS, |_| true);
        let (tile, pieces, _) = chosen.unwrap();
        assert_eq!((tile.to_string(), pieces.length), ("flash/128x64x64r8".to_owned(), 3));
    }

    /// Workgroups for the last pieces go where a round of the others leaves places.
    #[test]
    fn short_last_pieces_take_places_that_are_left() {
        let tile = FlashTile::ALL[2];
        // 72 tiles of 24 blocks, on as many units as give a round of 264.
        let speech = encoder([1, 6, 1500, 64]);
        let time = |length| {
            let pieces = FlashPieces::new(tile, &speech, Division::Blocks(length)).unwrap();
            pieces.nanoseconds(tile, &speech, 264 / tile.at_a_time())
        };
        assert!(time(7) < time(8) && time(7) < time(6), "{:?}", [6, 7, 8].map(time));
    }
}
