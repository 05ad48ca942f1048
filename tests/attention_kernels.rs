//! Every kernel for attention on every adapter, not only those that the planner would choose there: right
//! around the edges of its tile with every option, and with the keys in one piece and in several.

mod forced;

use std::process::ExitCode;
use std::sync::Arc;

use backend_api::desc::{AttentionDesc, AttentionShape};
use backend_api::{ComputeBackend, DType};
use backend_webgpu::WebGpuBackend;
use backend_webgpu::variants::attention_source;
use conformance::{Case, attention_around};
use forced::Device;
use libtest_mimic::{Failed, Trial};

fn main() -> ExitCode {
    forced::run(kernels)
}

/// A test for each kernel that the device can run.
fn kernels(device: &Arc<Device>) -> Vec<Trial> {
    let names = forced::runnable(device, WebGpuBackend::attention_kernels(), attention_source);
    let has_device_scope_barriers = forced::has_device_scope_barriers(&device.backend);
    let names = names.flat_map(|name| {
        let splits = ["cooperative-decode/", "decode/", "flash/", "split/"]
            .iter()
            .any(|kernel| name.starts_with(kernel));
        // Of one row and of several, in each kernel.
        let is_fixed_up = ["cooperative-decode/", "decode/1s16", "decode/4", "split/2"]
            .iter()
            .any(|kernel| has_device_scope_barriers && name.starts_with(kernel));
        let pieces: &[&str] = match (splits, is_fixed_up) {
            (true, true) => &["", "+split3", "+split3+fixup", "+split17+fixup"],
            (true, false) if name.starts_with("flash/") => &["", "+split3", "+blocks2"],
            (true, false) => &["", "+split3"],
            (false, _) => &[""],
        };
        pieces.iter().map(move |pieces| format!("{name}{pieces}")).collect::<Vec<_>>()
    });
    names.map(|kernel| device.trial(&kernel.clone(), move |backend| check(backend, &kernel))).collect()
}

fn check(backend: &WebGpuBackend, kernel: &str) -> Result<(), Failed> {
    backend.force_attention(Some(kernel))?;
    let tiles = tiles(kernel)?;
    let cases: Vec<Case> = tiles.iter().copied().flat_map(attention_around).collect();
    let outcome = is_used(backend, kernel, tiles[0]).and_then(|()| forced::check(backend, &cases));
    backend.force_attention(None)?;
    outcome
}

/// Whether a kernel makes attention that suits it: one on tensor cores that fails its self-test is replaced without a word, as
/// is one whose last workgroup can't put pieces together, or whose pieces are too long for the device's loops.
fn is_used(
    backend: &WebGpuBackend,
    kernel: &str,
    [queries, keys, head_dim]: [usize; 3],
) -> Result<(), Failed> {
    let is_fixed_up = kernel.ends_with("+fixup");
    // What subgroups have to be for attention/decode isn't told.
    let dtype = match kernel.split('/').next() {
        Some("cooperative" | "cooperative-decode") => DType::F16,
        Some("flash") => DType::F32,
        Some("split") if is_fixed_up => DType::F32,
        _ => return Ok(()),
    };
    let ptrs = [queries, keys, keys, queries].map(|rows| backend.alloc(rows * head_dim * dtype.size()));
    let [q, k, v, o] = ptrs;
    let ptrs = [q?, k?, v?, o?];
    let desc = AttentionDesc::new(
        dtype,
        ptrs[0],
        ptrs[1],
        ptrs[2],
        ptrs[3],
        AttentionShape { batch: 1, heads: 1, seq_q: queries, seq_kv: keys, head_dim },
    );
    let used = backend.explain_attention(&desc)?;
    ptrs.iter().try_for_each(|&ptr| backend.free(ptr))?;
    let name = if is_fixed_up || kernel.contains("+blocks") {
        kernel
    } else {
        kernel.split('+').next().unwrap_or_default()
    };
    if used.starts_with(name) { Ok(()) } else { Err(format!("{used} is used").into()) }
}

/// The queries, keys and numbers of a vector in a kernel's name; what suits a kernel that names but its rows.
fn tiles(kernel: &str) -> Result<Vec<[usize; 3]>, Failed> {
    let sizes = kernel.split(['/', '+']).nth(1).unwrap_or_default();
    let sizes = sizes.split(['r', 'p', 's']).next().unwrap_or_default();
    let sizes: Option<Vec<usize>> = sizes.split('x').map(|size| size.parse().ok()).collect();
    match sizes.as_deref() {
        Some(&[queries, keys, head_dim]) => Ok(vec![[queries, keys, head_dim]]),
        // Vectors of different lengths are spread differently.
        Some(_) if kernel.starts_with("decode/") => {
            Ok([64, 128, 256].map(|head_dim| [3, 100, head_dim]).into())
        }
        Some(_) => Ok(vec![[3, 100, 64]]),
        None => Err(format!("no tile in {kernel:?}").into()),
    }
}
