//! Parameters at the ends of their ranges, sizes that are wrong, and the names that their errors have.

use std::sync::Arc;

use backend_api::desc::{
    BatchNormDesc, ChannelShape, LayerNormDesc, NormBackwardDesc, NormBackwardWeightDesc, RmsNormDesc,
    SampleDesc,
};
use backend_api::owned::Buffer;
use backend_api::{BackendError, ComputeBackend, ErrorKind};
use backend_cpu::CpuBackend;

use super::{F32, download, upload};

/// 10³⁹ is infinite as f32, and leaves nothing; 10⁻⁵⁰ is 0.
#[test]
fn eps_is_f32() {
    let backend = CpuBackend::new();
    let numbers = [1.0f32, -2.0, 3.0, 5.0];
    let [x, y] = [upload(&backend, &numbers), upload(&backend, &[7.0f32; 4])];
    let gives = |what: &str, want: [f32; 4]| {
        assert_eq!(download::<f32>(&backend, y, 4), want, "{what}");
        backend.fill(y, F32, 4, 7.0).unwrap();
    };
    backend.layer_norm(&LayerNormDesc::new(F32, x, y, 1, 4).with_eps(1e39)).unwrap();
    gives("layer_norm", [0.0; 4]);
    backend.rms_norm(&RmsNormDesc::new(F32, x, y, 1, 4).with_eps(1e39)).unwrap();
    gives("rms_norm", [0.0; 4]);
    let backward = NormBackwardDesc::layer_norm(F32, x, x, y, 1, 4).with_eps(1e39);
    backend.norm_backward(&backward).unwrap();
    gives("norm_backward", [0.0; 4]);
    backend.norm_backward_weight(&NormBackwardWeightDesc::of(&backward, y)).unwrap();
    gives("norm_backward_weight", [0.0; 4]);
    let zero = upload(&backend, &[0.0f32]);
    let shape = ChannelShape { batch: 1, channels: 1, spatial: 4 };
    backend.batch_norm(&BatchNormDesc::new(F32, x, y, zero, zero, shape).with_eps(1e-50)).unwrap();
    gives("batch_norm", numbers.map(|x| x * f32::INFINITY));
}

/// Weights just below 1 round to 1, which is no reason to keep them where only 1 is kept.
#[test]
fn a_min_p_of_1_keeps_the_largest_at_any_temperature() {
    let backend = CpuBackend::new();
    let logits: Vec<f32> =
        (0..1000).map(|token| if token == 700 { 3.5 } else { (token % 7) as f32 / 2.0 }).collect();
    let [x, token] = [upload(&backend, &logits), upload(&backend, &[-1])];
    for (temperature, offset) in [1e6, 1e30, 1e39, f64::INFINITY].into_iter().zip(0..) {
        let desc =
            SampleDesc::new(F32, x, token, 1, 1000, 7).with_temperature(temperature).with_offset(offset);
        backend.sample(&desc.with_min_p(1.0)).unwrap();
        assert_eq!(download::<i32>(&backend, token, 1), [700], "{temperature}");
    }
}

#[test]
fn errors_of_zeroed_memory_say_so() {
    let refused = CpuBackend::new().alloc_zeroed(usize::MAX).unwrap_err();
    assert!(matches!(refused, BackendError::Limit { op: "alloc_zeroed", .. }), "{refused}");
}

/// A buffer that claims more than its handle has is an error, and no allocation of as much on the host.
#[test]
fn a_buffer_of_wrong_size_is_refused() {
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    for bytes in [20, 1 << 46, usize::MAX - 3] {
        let buffer = Buffer::own(&backend, backend.alloc(16).unwrap(), bytes);
        assert_eq!(buffer.to_vec::<f32>().map_err(|error| error.kind()), Err(ErrorKind::BufferTooSmall));
    }
    let buffer = Buffer::own(&backend, backend.alloc(16).unwrap(), 8);
    assert_eq!(buffer.to_vec::<u8>(), Ok(vec![0; 8]));
    assert_eq!(Buffer::new::<f32>(&backend, &[0]).unwrap().to_vec::<f32>(), Ok(Vec::new()));
    drop(buffer);
    assert_eq!(backend.memory_stats().handles, 0);
}
