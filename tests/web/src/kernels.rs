//! The texts of the kernels, for a suite that gives each of them to the browser's compiler.

use std::collections::HashSet;

use backend_webgpu::variants::{Target, Variant, all_variants, compose};
use wasm_bindgen::prelude::wasm_bindgen;

/// A kernel as a page is given it.
#[wasm_bindgen(getter_with_clone)]
#[derive(Debug)]
pub struct Kernel {
    /// Its name and specialisation.
    pub label: String,
    /// WGSL with an entry point `main`.
    pub text: String,
    /// Number of read-only storage bindings, numbered from 0.
    pub reads: u32,
    /// Number of read-write storage bindings, numbered on.
    pub writes: u32,
}

/// Every variant that needs neither subgroups, cooperative matrices nor barriers of the device's scope, which wgpu offers in no
/// browser, nor more storage buffers than every one offers; once for CPUs that pose as a GPU and once for GPUs where the two get different texts.
pub(crate) fn all() -> Vec<Kernel> {
    let mut seen = HashSet::new();
    let mut kernels = Vec::new();
    let in_pages = |variant: &Variant| {
        let requires = variant.requires();
        !requires.subgroups
            && !requires.cooperative_matrices
            && !requires.device_scope_barriers
            && requires.storage_buffers <= 8
    };
    for variant in all_variants().into_iter().filter(in_pages) {
        for unroll in [false, true] {
            let text = compose(&variant, Target { immediates: false, unroll });
            if seen.insert(text.clone()) {
                let label = format!("{variant:?}{}", if unroll { " unrolled" } else { "" });
                let source = variant.source();
                kernels.push(Kernel {
                    label,
                    text,
                    reads: source.reads.len() as u32,
                    writes: source.writes.len() as u32,
                });
            }
        }
    }
    kernels
}
