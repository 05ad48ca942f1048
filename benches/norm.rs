//! Softmax and the normalisations: rows of middling length, few long rows, many short ones.
//!
//! `cargo bench --bench norm`; `COMPUTE_BACKEND=webgpu:0` chooses a device.

use backend_api::DType;
use backend_api::desc::{ChannelShape, GroupNormDesc, LayerNormDesc, RmsNormDesc, SoftmaxDesc};
use benches::rows::Bench;

fn main() {
    let mut bench = Bench::open();
    let (rows, columns) = (bench.size(16_384, 64), bench.size(4096, 256));
    let (long, many) = (bench.size(32_768, 16_384), bench.size(1_000_000, 1000));
    let few = bench.size(32, 2);
    for dtype in [DType::F32, DType::F16] {
        if !bench.supports(dtype) {
            continue;
        }
        let n = (rows * columns).max(few * long).max(many * 32);
        let operands = [n, n, n, columns, columns].map(|elements| bench.subject.operand(dtype, elements));
        let [x, y, residual, weight, bias] = operands;
        for (name, rows, columns) in [
            (format!("{rows}x{columns}"), rows, columns),
            (format!("{few}x{long}"), few, long),
            (format!("{many}x32"), many, 32),
            (format!("{rows}x{}", columns - 1), rows, columns - 1),
        ] {
            let desc = SoftmaxDesc::rows(dtype, x, y, rows, columns);
            bench.measure("softmax", &name, dtype, 2 * rows * columns, |b| b.softmax(&desc));
        }
        let elements = 2 * rows * columns;
        let name = format!("{rows}x{columns}");
        let log = SoftmaxDesc::rows(dtype, x, y, rows, columns).with_log();
        bench.measure("log_softmax", &name, dtype, elements, |b| b.softmax(&log));
        let mut layer = LayerNormDesc::new(dtype, x, y, rows, columns);
        (layer.weight, layer.bias) = (Some(weight), Some(bias));
        bench.measure("layer_norm", &name, dtype, elements, |b| b.layer_norm(&layer));
        let mut rms = RmsNormDesc::new(dtype, x, y, rows, columns);
        rms.weight = Some(weight);
        bench.measure("rms_norm", &name, dtype, elements, |b| b.rms_norm(&rms));
        rms.residual = Some(residual);
        bench.measure("rms_norm_residual", &name, dtype, elements / 2 * 3, |b| b.rms_norm(&rms));
        let mut group = GroupNormDesc::new(
            dtype,
            x,
            y,
            ChannelShape { batch: rows / 64, channels: 64, spatial: columns },
            16,
        );
        (group.weight, group.bias) = (Some(weight), Some(bias));
        let name = format!("{}x64x{columns}", rows / 64);
        bench.measure("group_norm", &name, dtype, elements, |b| b.group_norm(&group));
        bench.subject.free(&operands);
    }
    bench.finish();
}
