//! Options alone and together, chosen by hand.

use backend_api::DType;
use backend_api::desc::AttentionAlignment;

use super::{Attention, DTYPES, PLAIN, Sinks};
use crate::families::attention_special::{At, Special};
use crate::families::heads::{Layout, Mask};
use crate::families::pages::Paging;

/// Every option alone and with causal masks, of each type, over vectors of the common lengths.
pub(super) fn edges() -> impl Iterator<Item = Attention> {
    let mut all = Vec::new();
    for dtypes in DTYPES {
        let plain = Attention { dtypes, ..PLAIN };
        for causal in [false, true] {
            let plain = Attention { causal, ..plain };
            all.extend([1, 32, 64, 80, 96, 128, 256, 512].map(|head_dim| Attention {
                head_dim,
                v_head_dim: head_dim,
                ..plain
            }));
            // Values that are shorter and longer than keys, for many and for few queries.
            for (head_dim, v_head_dim) in
                [(192, 128), (576, 512), (64, 256), (40, 301), (1, 5), (40, 24), (5, 1)]
            {
                all.extend([40, 3].map(|seq_q| Attention { seq_q, head_dim, v_head_dim, ..plain }));
            }
            for alignment in [AttentionAlignment::TopLeft, AttentionAlignment::KeyLengths] {
                let plain =
                    Attention { alignment, batch: 3, lengths: true, head_dim: 32, v_head_dim: 32, ..plain };
                for (seq_q, seq_kv) in [(40, 70), (70, 40), (2, 300), (9, 4)] {
                    all.extend([None, Some(7)].map(|window| Attention { seq_q, seq_kv, window, ..plain }));
                }
            }
            all.push(Attention { mask: Mask::Full, hides: true, softcap: 3.0, ..plain });
            all.push(Attention { mask: Mask::Keys, hides: true, batch: 2, seq_q: 2, heads: (4, 2), ..plain });
            all.extend(
                [None, Some(0), Some(1), Some(7), Some(64), Some(1000), Some(usize::MAX)]
                    .map(|window| Attention { window, ..plain }),
            );
            all.extend([-1.5, 1e-3, 5.0, 1e300].map(|softcap| Attention { softcap, ..plain }));
            all.extend(
                [(1, 1), (257, 257), (1, 257), (257, 1), (9, 70), (8, 300)].map(|(seq_q, seq_kv)| {
                    Attention { seq_q, seq_kv, head_dim: 32, v_head_dim: 32, ..plain }
                }),
            );
            // Some queries over so many keys that these may be divided on tensor cores.
            let many_keys = Attention { seq_kv: 530, head_dim: 128, v_head_dim: 128, heads: (4, 2), ..plain };
            all.extend([9, 32].map(|seq_q| Attention { seq_q, ..many_keys }));
            all.push(Attention { seq_q: 16, batch: 2, lengths: true, window: Some(480), ..many_keys });
            // More queries than keys: the first see nothing.
            all.push(Attention { seq_q: 70, seq_kv: 40, ..plain });
            all.push(Attention { seq_q: 7, seq_kv: 3, ..plain });
            // Key lengths of half, none and all; grouped heads.
            all.push(Attention { batch: 3, lengths: true, heads: (4, 2), seq_q: 17, ..plain });
            all.push(Attention { batch: 3, lengths: true, heads: (8, 1), seq_q: 1, ..plain });
            all.push(Attention {
                batch: 3,
                lengths: true,
                heads: (6, 2),
                seq_q: 3,
                window: Some(9),
                ..plain
            });
            all.push(Attention { mask: Mask::Full, softcap: 3.0, window: Some(20), ..plain });
            all.push(Attention { mask: Mask::Full, seq_q: 2, heads: (3, 1), window: Some(20), ..plain });
            for sinks in Sinks::ALL.into_iter().skip(1).filter(|_| causal) {
                let plain = Attention { sinks, heads: (6, 2), ..plain };
                // The first queries see nothing.
                all.extend([70, 3].map(|seq_q| Attention { seq_q, seq_kv: 3 * seq_q / 4, ..plain }));
                all.push(Attention { batch: 3, lengths: true, seq_q: 1, mask: Mask::Keys, ..plain });
            }
        }
    }
    // More keys than 65,535, after which some drivers leave a loop.
    all.push(Attention { seq_q: 20, seq_kv: 100_001, head_dim: 8, v_head_dim: 8, ..PLAIN });
    all.into_iter()
}

/// Keys and values of Q8_0 beside queries of each type: few of them, and as many as have the blocks dequantised first.
pub(super) fn blocks() -> impl Iterator<Item = Attention> {
    let plain =
        Attention { dtypes: [DType::F32; 2], blocks: true, heads: (2, 1), seq_q: 1, causal: true, ..PLAIN };
    let gaps = [Layout::Gaps; 4];
    let tokens = [Layout::Tokens; 4];
    let cached = AttentionAlignment::KeyLengths;
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let one = |of, value| Special::One { of, at: At::Middle, value };
    let cases = [
        plain,
        Attention { head_dim: 32, v_head_dim: 32, heads: (5, 1), layouts: gaps, ..plain },
        Attention { head_dim: 96, v_head_dim: 96, heads: (4, 4), seq_kv: 300, layouts: tokens, ..plain },
        Attention {
            head_dim: 128,
            v_head_dim: 128,
            batch: 3,
            lengths: true,
            heads: (8, 2),
            layouts: tokens,
            ..plain
        },
        Attention { head_dim: 256, v_head_dim: 256, seq_q: 3, softcap: 2.0, ..plain },
        Attention { v_head_dim: 160, seq_q: 2, mask: Mask::Full, ..plain },
        Attention {
            seq_q: 16,
            batch: 3,
            lengths: true,
            alignment: cached,
            window: Some(9),
            layouts: gaps,
            ..plain
        },
        Attention { seq_q: 9, sinks: Sinks::Random, heads: (3, 3), seq_kv: 7, ..plain },
        Attention { seq_kv: 1, heads: (1, 1), causal: false, ..plain },
        Attention { special: one('v', nan), seq_q: 2, ..plain },
        Attention { special: one('v', inf), batch: 2, lse: false, ..plain },
        Attention { special: one('k', nan), seq_q: 2, layouts: gaps, ..plain },
        Attention { special: Special::Scale(-6.0), sinks: Sinks::Far, ..plain },
        Attention { seq_q: 17, sinks: Sinks::Random, batch: 2, heads: (4, 2), layouts: gaps, ..plain },
        Attention { seq_q: 40, head_dim: 96, v_head_dim: 32, mask: Mask::Keys, layouts: tokens, ..plain },
        Attention { seq_q: 20, special: one('v', nan), ..plain },
        Attention { seq_q: 70, seq_kv: 40, head_dim: 512, v_head_dim: 512, heads: (1, 1), ..plain },
    ];
    let half = cases.into_iter().step_by(2).map(|case| Attention { dtypes: [DType::F16; 2], ..case });
    cases.into_iter().chain(half)
}

/// Keys and values in blocks of a pool, of each type: for few queries, which read them there, and for more.
pub(super) fn paged() -> impl Iterator<Item = Attention> {
    let paging = |size| Some(Paging { size, outside: false });
    let plain = Attention {
        batch: 3,
        heads: (4, 2),
        seq_q: 1,
        causal: true,
        alignment: AttentionAlignment::KeyLengths,
        lengths: true,
        paging: paging(16),
        ..PLAIN
    };
    let (tokens, gaps) = ([Layout::Tokens; 4], [Layout::Gaps; 4]);
    let nan = Special::One { of: 'v', at: At::Middle, value: f64::NAN };
    let outside = Some(Paging { size: 16, outside: true });
    let cases = [
        plain,
        Attention { batch: 5, heads: (8, 1), head_dim: 128, v_head_dim: 128, layouts: tokens, ..plain },
        Attention { seq_kv: 300, batch: 2, paging: paging(32), window: Some(9), layouts: tokens, ..plain },
        Attention { window: Some(20), seq_q: 3, sinks: Sinks::Random, layouts: gaps, ..plain },
        Attention { seq_kv: 300, batch: 1, lengths: false, softcap: 2.0, heads: (3, 3), ..plain },
        Attention { paging: paging(1024), batch: 2, seq_q: 2, heads: (9, 1), ..plain },
        Attention { paging: outside, batch: 2, seq_kv: 100, layouts: tokens, ..plain },
        Attention { seq_q: 16, batch: 5, lse: false, causal: false, sinks: Sinks::Far, ..plain },
        Attention { special: nan, seq_q: 2, lengths: false, ..plain },
        // Many queries, and masks.
        Attention { seq_q: 17, batch: 5, layouts: tokens, ..plain },
        Attention { seq_q: 40, paging: outside, window: Some(33), layouts: gaps, ..plain },
        Attention { mask: Mask::Full, batch: 2, paging: paging(64), layouts: tokens, ..plain },
    ];
    let of = |dtypes, at: &'static [usize]| {
        at.iter().map(move |&i: &usize| Attention { dtypes, ..cases[i] }).collect::<Vec<_>>()
    };
    // Vectors that don't have 16 bytes each, of two lengths.
    let narrow = |dtypes, i: usize| Attention { dtypes, head_dim: 40, v_head_dim: 23, ..cases[i] };
    let numbers = [
        cases.into(),
        of(DTYPES[1], &[0, 3, 6, 9]),
        of(DTYPES[2], &[1, 10, 11]),
        vec![narrow(DTYPES[0], 2), narrow(DTYPES[1], 9), narrow(DTYPES[2], 7)],
        vec![Attention { head_dim: 576, v_head_dim: 512, batch: 2, heads: (2, 1), ..plain }],
    ];
    let blocks = of(DTYPES[0], &[0, 3, 9]).into_iter().chain(of(DTYPES[1], &[6, 11]));
    let blocks = blocks.map(|case| Attention { blocks: true, ..case });
    numbers.concat().into_iter().chain(blocks)
}
