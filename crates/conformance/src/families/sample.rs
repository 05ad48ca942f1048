//! `sample`: every way to leave tokens out, alone and together, drawn with many numbers.

use backend_api::desc::{RepetitionPenalty, SampleDesc};
use backend_api::{DType, random};

use crate::case::Case;
use crate::float::round_to;
use crate::oracle::sample::tokens;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

const SEED: u64 = 0x1234_5678_9abc_def0;

/// What may be drawn, and how.
#[derive(Clone, Copy, Debug)]
struct Draw {
    dtype: DType,
    rows: usize,
    columns: usize,
    /// How tokens are drawn, without operands and extents.
    settings: SampleDesc,
    window: Option<usize>,
    /// Where in the stream, and what is added to that in memory.
    offset: u64,
    added: Option<u64>,
    special: bool,
}

pub(super) fn cases() -> Vec<Case> {
    let plain = SampleDesc::new(DType::F32, 0, 0, 0, 0, SEED);
    let penalised = |penalty| plain.with_repetition(RepetitionPenalty { window: 0, len: 0, penalty });
    let settings = [
        plain,
        plain.with_temperature(0.0),
        plain.with_temperature(-1.0).with_top_p(f64::NAN),
        plain.with_temperature(0.3),
        plain.with_temperature(20.0),
        plain.with_top_k(1),
        plain.with_top_k(7).with_temperature(3.0),
        plain.with_top_k(1_000_000),
        plain.with_top_p(0.5).with_temperature(2.0),
        plain.with_top_p(0.0),
        plain.with_min_p(0.2).with_temperature(2.0),
        plain.with_min_p(5.0),
        penalised(1.7).with_temperature(2.0),
        penalised(f64::NAN),
        penalised(1.1).with_temperature(0.8).with_top_k(40).with_top_p(0.9).with_min_p(0.05),
        penalised(0.7).with_temperature(5.0).with_top_k(400).with_top_p(0.95).with_min_p(0.001),
        plain.with_temperature(f64::INFINITY),
        plain.with_temperature(1e-60),
        plain.with_min_p(5.0).with_temperature(1e30),
    ];
    let shapes = [[64, 5], [33, 300], [20, 1500], [1, 1], [3, 33_000], [0, 7]];
    let mut cases = Vec::new();
    for (i, settings) in settings.into_iter().enumerate() {
        for (j, [rows, columns]) in shapes.into_iter().enumerate() {
            let draw = Draw {
                dtype: [DType::F32, DType::F16][(i + j) % 2],
                rows,
                columns,
                settings,
                window: (settings.repetition.is_some() || i % 4 == 0).then_some([9, 0, 70][j % 3]),
                offset: [0, 5, u64::MAX - 3, (1 << 32) - 9][(i + j) % 4],
                added: [None, Some(3), Some((7 << 32) | 11)][(i + 2 * j) % 3],
                special: i % 3 == 1,
            };
            cases.push(draw.case(format!("{i}")));
        }
    }
    cases.extend([[300, 100], [2000, 500]].into_iter().flat_map(masked));
    cases
}

/// Draws from rows whose last tokens are masked with −∞, by the largest numbers below 1: sums of the weights
/// before a token, formed in other orders, may not reach them.
fn masked([columns, hidden]: [usize; 2]) -> impl Iterator<Item = Case> {
    // Places in the stream of seed 1 whose number is at least 1 − 3·2⁻²⁴.
    const LARGEST: [u64; 3] = [25_275_781, 33_674_056, 9_769_685];
    (0..12).map(move |i| {
        let top_p = [1.0, 2.0][i % 2];
        let name = format!("masked{hidden}_of{columns}_top_p{top_p}_draw{i}");
        Case::new("sample", name, move |rng| {
            let logits: Vec<f64> = (0..columns)
                .map(|token| match columns - token > hidden {
                    true => round_to(DType::F32, rng.uniform(0.0, 3.0)),
                    false => f64::NEG_INFINITY,
                })
                .collect();
            let at = LARGEST[i % LARGEST.len()];
            let number = random::uniforms(random::philox_block(1, at / 4))[(at % 4) as usize];
            let desc = SampleDesc::new(DType::F32, 0, 0, 1, columns, 1).with_top_p(top_p).with_offset(at);
            let possible = tokens(&desc, &logits, &[], f64::from(number));
            let want = Want::AnyOf(possible.into_iter().map(|token| Want::Exact(token as f64)).collect());
            let mut trial = Trial::new();
            trial.input("logits", DType::F32, &logits);
            trial.output("tokens", DType::I32, vec![want]);
            trial.calling(move |backend, p| {
                let mut desc = desc;
                (desc.logits, desc.tokens) = (p[0], p[1]);
                backend.sample(&desc)
            })
        })
    })
}

impl Draw {
    fn case(self, name: String) -> Case {
        let Self { dtype, rows, columns, .. } = self;
        Case::new("sample", format!("settings{name}_{dtype}_rows{rows}_columns{columns}"), move |rng| {
            self.trial(rng)
        })
    }

    fn logits(self, rng: &mut Rng) -> Vec<f64> {
        let specials = [f64::NAN, f64::NEG_INFINITY, f64::INFINITY, 0.0, -0.0, 60_000.0, -60_000.0];
        let mut row = 0;
        (0..self.rows * self.columns)
            .map(|i| {
                row = i / self.columns;
                // Every fourth row of some cases has numbers of all kinds, and one nothing else than one.
                let x = match row % 4 {
                    3 if self.special && rng.one_in(8) => rng.pick(&specials),
                    2 if self.special && row == 2 => f64::NEG_INFINITY,
                    _ => rng.uniform(-6.0, 6.0),
                };
                round_to(self.dtype, x)
            })
            .collect()
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let Self { dtype, rows, columns, settings, offset, added, .. } = self;
        let logits = self.logits(rng);
        let len = self.window.unwrap_or(0);
        // Some twice, some that there are not.
        let window: Vec<f64> = (0..rows * len).map(|_| rng.below(columns + 3) as f64 - 2.0).collect();
        let start = offset.wrapping_add(added.unwrap_or(0));
        let wants = (0..rows).map(|row| {
            let at = start.wrapping_add(row as u64);
            let number = random::uniforms(random::philox_block(SEED, at / 4))[(at % 4) as usize];
            let row_logits = &logits[row * columns..][..columns];
            let possible = tokens(&settings, row_logits, &window[row * len..][..len], f64::from(number));
            Want::AnyOf(possible.into_iter().map(|token| Want::Exact(token as f64)).collect())
        });
        let wants = wants.collect();
        let mut trial = Trial::new();
        trial.input("logits", dtype, &logits);
        trial.output("tokens", DType::I32, wants);
        trial.input("window", DType::I32, &window);
        let words = added.map_or(Vec::new(), |x| vec![f64::from(x as u32), f64::from((x >> 32) as u32)]);
        trial.input("offset_ptr", DType::U32, &words);
        trial.calling(move |backend, p| {
            let mut desc = settings.with_offset(offset);
            (desc.logits, desc.tokens) = (p[0], p[1]);
            (desc.dtype, desc.rows, desc.columns) = (dtype, rows, columns);
            let penalty = settings.repetition.map_or(1.0, |repetition| repetition.penalty);
            desc.repetition = self.window.map(|_| RepetitionPenalty { window: p[2], len, penalty });
            if added.is_some() {
                desc = desc.with_offset_ptr(p[3]);
            }
            backend.sample(&desc)
        })
    }
}
