//! `random`: every bit as the contract defines it, wherever in a stream and in memory the numbers lie.

use backend_api::desc::{Distribution, RandomDesc};
use backend_api::{DType, random};

use crate::case::Case;
use crate::float::round_to;
use crate::trial::Trial;
use crate::want::Want;

const LENGTHS: [usize; 8] = [0, 1, 3, 4, 64, 257, 1000, 70_000];
const PLACES: [(u64, u64); 5] =
    [(0, 0), (42, 1), (u64::MAX, 6), (7, (1 << 34) - 8), (1 << 40, u64::MAX - 100_003)];
const DISTRIBUTIONS: [Distribution; 4] = [
    Distribution::Uniform { low: 0.0, high: 1.0 },
    Distribution::Uniform { low: -3.3, high: 7.1 },
    Distribution::Normal { mean: 0.0, std: 1.0 },
    Distribution::Normal { mean: 10.7, std: 0.3 },
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for (d, distribution) in DISTRIBUTIONS.into_iter().enumerate() {
            for (i, n) in LENGTHS.into_iter().enumerate() {
                cases.push(case(dtype, d, distribution, n, (i + d) % PLACES.len()));
            }
            for place in 0..PLACES.len() {
                cases.extend([96, 131].map(|n| case(dtype, d, distribution, n, place)));
            }
        }
    }
    for dtype in [DType::F32, DType::F16] {
        for (i, distribution) in DISTRIBUTIONS.into_iter().enumerate() {
            for (added, n) in ADDED.into_iter().zip([1, 5, 64, 1003, 2, 70_000]) {
                cases.push(offset_case(dtype, i, distribution, n, added));
            }
        }
    }
    cases
}

/// What memory adds to the offset of a call, and that offset; the sum may pass 2³² and 2⁶⁴.
const ADDED: [(u64, u64); 6] = [
    (0, 3),
    (5, 0),
    (0xffff_fffe, 7),
    (u64::MAX - 500, 2),
    (1 << 63, 1 << 63),
    ((1 << 40) + 1, u64::MAX - 30_000 - (1 << 40)),
];

/// Numbers of a stream whose place lies in memory.
fn offset_case(
    dtype: DType,
    number: usize,
    distribution: Distribution,
    n: usize,
    (added, offset): (u64, u64),
) -> Case {
    let name = format!("{dtype}_d{number}_n{n}_offset_in_memory_{added:x}");
    Case::new("random", name, move |_| {
        let (seed, start) = (42, offset.wrapping_add(added));
        let at = |i| Want::Exact(expected(dtype, distribution, seed, start.wrapping_add(i)));
        let mut trial = Trial::new();
        trial.output("output", dtype, (0..n as u64).map(at).collect());
        trial.input("offset_ptr", DType::U32, &[added as u32, (added >> 32) as u32].map(f64::from));
        trial.calling(move |backend, p| {
            let desc = RandomDesc::new(p[0], dtype, n, seed, distribution).with_offset(offset);
            backend.random(&desc.with_offset_ptr(p[1]))
        })
    })
}

fn case(dtype: DType, number: usize, distribution: Distribution, n: usize, place: usize) -> Case {
    let (seed, offset) = PLACES[place];
    Case::new("random", format!("{dtype}_d{number}_n{n}_place{place}"), move |_| {
        let wants = (0..n as u64).map(|i| Want::Exact(expected(dtype, distribution, seed, offset + i)));
        let mut trial = Trial::new();
        trial.output("output", dtype, wants.collect());
        trial.calling(move |backend, p| {
            backend.random(&RandomDesc::new(p[0], dtype, n, seed, distribution).with_offset(offset))
        })
    })
}

/// A number of a stream. The generator and the normal numbers are compared with others' where they are
/// defined.
fn expected(dtype: DType, distribution: Distribution, seed: u64, at: u64) -> f64 {
    let words = random::philox_block(seed, at / 4);
    let numbers = match distribution {
        Distribution::Normal { .. } => random::normals(words),
        _ => random::uniforms(words),
    };
    let [shift, scale] = distribution.affine();
    round_to(dtype, f64::from(shift + scale * numbers[(at % 4) as usize]))
}
