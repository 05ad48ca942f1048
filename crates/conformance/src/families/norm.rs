//! `layer_norm` and `rms_norm`: with and without weight, bias, residual and sum, in place on either input,
//! with weights of either type.

use backend_api::DType;
use backend_api::desc::{LayerNormDesc, RmsNormDesc};

use crate::case::Case;
use crate::data::uniform;
use crate::grid::pairwise;
use crate::oracle::norm::Row;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

const COLUMNS: [usize; 23] = [
    1, 2, 3, 5, 8, 31, 32, 63, 64, 100, 255, 256, 257, 384, 768, 777, 1025, 4096, 4097, 8196, 8201, 16_383,
    32_772,
];
const ROWS: [usize; 4] = [1, 2, 5, 17];

/// Where the output or the sum is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Apart,
    OntoInput,
    OntoResidual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Uniform in [−1, 1).
    Centred,
    /// Around 30: the variance is small beside the mean.
    Offset,
    /// Tiny, so that eps rules.
    Tiny,
    /// One number everywhere: no variance at all.
    Constant,
}

const OUTPUTS: [Target; 3] = [Target::Apart, Target::OntoInput, Target::OntoResidual];
const SUMS: [Option<Target>; 4] =
    [None, Some(Target::Apart), Some(Target::OntoInput), Some(Target::OntoResidual)];
const KINDS: [Kind; 4] = [Kind::Centred, Kind::Offset, Kind::Tiny, Kind::Constant];

#[derive(Clone, Copy, Debug)]
struct Norm {
    /// Layer norm, or else RMS norm, which has no bias.
    layer: bool,
    dtype: DType,
    weight_dtype: DType,
    output_dtype: DType,
    rows: usize,
    columns: usize,
    eps: f64,
    weight: bool,
    bias: bool,
    residual: bool,
    output: Target,
    sum: Option<Target>,
    kind: Kind,
}

pub(super) fn cases() -> Vec<Case> {
    let counts = [2, 4, ROWS.len(), COLUMNS.len(), 3, 2, 2, 2, 3, 4, 4];
    let seeds = ["norm 1", "norm 2", "norm 3", "norm 4", "norm 5", "norm 6"];
    let covering = seeds.into_iter().flat_map(|seed| pairwise(&counts, seed)).map(|row| {
        let layer = row[0] == 0;
        let narrows = row[1] == 3;
        let output = if narrows { Target::Apart } else { OUTPUTS[row[8]] };
        let sum = SUMS[row[10]].filter(|&sum| sum == Target::Apart || sum != output);
        Norm {
            layer,
            dtype: [DType::F32, DType::F16, DType::F16, DType::F32][row[1]],
            weight_dtype: [DType::F32, DType::F16, DType::F32, DType::F32][row[1]],
            output_dtype: [DType::F32, DType::F16, DType::F16, DType::F16][row[1]],
            rows: ROWS[row[2]],
            columns: COLUMNS[row[3]],
            eps: [1e-5, 1e-12, 0.1][row[4]],
            weight: row[5] == 1,
            bias: layer && row[6] == 1,
            residual: row[7] == 1 || [Some(output), sum].contains(&Some(Target::OntoResidual)),
            output,
            sum,
            kind: KINDS[row[9]],
        }
    });
    let edges = [true, false].map(|layer| {
        // And an eps that is infinite as f32.
        [(0, 5, 1e-5), (5, 0, 1e-5), (70_000, 3, 1e-5), (3, 100, 1e39)].map(|(rows, columns, eps)| Norm {
            layer,
            dtype: DType::F32,
            weight_dtype: DType::F32,
            output_dtype: DType::F32,
            rows,
            columns,
            eps,
            weight: true,
            bias: layer,
            residual: true,
            output: Target::Apart,
            sum: Some(Target::OntoResidual),
            kind: Kind::Centred,
        })
    });
    let shared = [(true, DType::F32), (true, DType::F16), (false, DType::F32), (false, DType::F16)];
    let shared = shared.map(|(layer, dtype)| in_one_buffer(layer, dtype));
    covering.chain(edges.into_iter().flatten()).map(Norm::case).chain(shared).collect()
}

/// Long rows in the output's allocation: the output begins at a vector, input and residual in the middle of
/// one.
fn in_one_buffer(layer: bool, dtype: DType) -> Case {
    const COLUMNS: usize = 32_772;
    const STARTS: [usize; 3] = [1, COLUMNS + 3, 2 * COLUMNS + 4];
    let name = format!("{dtype}_1x{COLUMNS}_in_one_buffer");
    Case::new(super::flag(layer, "layer_norm", "rms_norm"), name, move |rng| {
        let [input, residual] = [(); 2].map(|()| uniform(rng, dtype, COLUMNS, 0.0, 2.0));
        let row = Row { input: &input, residual: &residual, weight: &[], bias: &[], eps: 1e-5 };
        let wants = if layer { row.layer_norm() } else { row.rms_norm() };
        // Numbers between the operands that would show in the moments.
        let mut memory = vec![1000.0; STARTS[2] + COLUMNS];
        memory[STARTS[0]..][..COLUMNS].copy_from_slice(&input);
        memory[STARTS[1]..][..COLUMNS].copy_from_slice(&residual);
        let mut trial = Trial::new();
        trial.scattered("output", dtype, memory, (STARTS[2]..).zip(wants).collect());
        trial.operands.iter_mut().for_each(|operand| operand.align = 16);
        trial.calling(move |backend, p| {
            let size = dtype.size();
            let [input, residual, output] =
                STARTS.map(|start| backend.view(p[0], start * size, COLUMNS * size));
            let (input, residual, output) = (input?, residual?, output?);
            let called = if layer {
                let mut desc = LayerNormDesc::new(dtype, input, output, 1, COLUMNS);
                desc.residual = Some(residual);
                backend.layer_norm(&desc)
            } else {
                let mut desc = RmsNormDesc::new(dtype, input, output, 1, COLUMNS);
                desc.residual = Some(residual);
                backend.rms_norm(&desc)
            };
            [input, residual, output].into_iter().try_for_each(|view| backend.free(view))?;
            called
        })
    })
}

impl Norm {
    fn case(self) -> Case {
        let Self { dtype, rows, columns, eps, .. } = self;
        let parts: String = [(self.weight, "w"), (self.bias, "b"), (self.residual, "r")]
            .iter()
            .map(|&(on, name)| super::flag(on, name, ""))
            .collect();
        let (output, kind) = (self.output, self.kind);
        let weights = super::flag(self.weight_dtype != dtype, "_weights_f32", "");
        let narrows = super::flag(self.output_dtype != dtype, "_output_f16", "");
        let sum = self.sum.map_or_else(String::new, |sum| format!("_sum_{sum:?}"));
        let parts = format!("{parts}_{output:?}_{kind:?}");
        let name =
            format!("{dtype}_{rows}x{columns}_eps{eps}_with{parts}{weights}{narrows}{sum}").to_lowercase();
        let family = super::flag(self.layer, "layer_norm", "rms_norm");
        Case::new(family, name, move |rng| self.trial(rng))
    }

    fn values(&self, rng: &mut Rng, n: usize) -> Vec<f64> {
        match self.kind {
            Kind::Centred => uniform(rng, self.dtype, n, -1.0, 1.0),
            Kind::Offset => uniform(rng, self.dtype, n, 29.0, 31.0),
            Kind::Tiny => uniform(rng, self.dtype, n, -1e-4, 1e-4),
            Kind::Constant => vec![0.75; n],
        }
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let (rows, columns, dtype) = (self.rows, self.columns, self.dtype);
        let n = rows * columns;
        let input = self.values(rng, n);
        let residual = if self.residual { self.values(rng, n) } else { Vec::new() };
        let mut vector = |on: bool| {
            if on { uniform(rng, self.weight_dtype, columns, -2.0, 2.0) } else { Vec::new() }
        };
        let (weight, bias) = (vector(self.weight), vector(self.bias));
        let of_rows = |what: &dyn Fn(&Row<'_>) -> Vec<Want>| -> Vec<Want> {
            let row = |row: usize| Row {
                input: &input[row * columns..][..columns],
                residual: residual.get(row * columns..(row + 1) * columns).unwrap_or(&[]),
                weight: &weight,
                bias: &bias,
                eps: self.eps,
            };
            (0..rows).flat_map(|i| what(&row(i))).collect()
        };
        let wants = of_rows(&|row| if self.layer { row.layer_norm() } else { row.rms_norm() });
        let sums = of_rows(&|row| row.sums());

        let mut trial = Trial::new();
        trial.input("weight", self.weight_dtype, &weight);
        trial.input("bias", self.weight_dtype, &bias);
        for (arg, values, target) in
            [("residual", &residual, Target::OntoResidual), ("input", &input, Target::OntoInput)]
        {
            if self.output == target {
                trial.in_place(arg, dtype, values.clone(), wants.clone());
            } else if self.sum == Some(target) {
                trial.in_place(arg, dtype, values.clone(), sums.clone());
            } else {
                trial.input(arg, dtype, values);
            }
        }
        trial.output(
            "output",
            self.output_dtype,
            if self.output == Target::Apart { wants } else { Vec::new() },
        );
        trial.output("sum", dtype, if self.sum == Some(Target::Apart) { sums } else { Vec::new() });
        trial.calling(move |backend, p| {
            let (weight, bias) = (self.weight.then_some(p[0]), self.bias.then_some(p[1]));
            let (residual, input) = (self.residual.then_some(p[2]), p[3]);
            let place = |target: Target, apart: u64| match target {
                Target::OntoInput => input,
                Target::OntoResidual => p[2],
                Target::Apart => apart,
            };
            let output = place(self.output, p[4]);
            let sum = self.sum.map(|target| place(target, p[5]));
            if self.layer {
                let mut desc = LayerNormDesc::new(dtype, input, output, rows, columns).with_eps(self.eps);
                (desc.weight, desc.bias, desc.weight_dtype) = (weight, bias, self.weight_dtype);
                (desc.residual, desc.sum, desc.output_dtype) = (residual, sum, self.output_dtype);
                backend.layer_norm(&desc)
            } else {
                let mut desc = RmsNormDesc::new(dtype, input, output, rows, columns).with_eps(self.eps);
                (desc.weight, desc.weight_dtype) = (weight, self.weight_dtype);
                (desc.residual, desc.sum, desc.output_dtype) = (residual, sum, self.output_dtype);
                backend.rms_norm(&desc)
            }
        })
    }
}
