//! Pipelines, compiled once for each variant.

use std::collections::HashMap;
use std::sync::Arc;

use backend_api::{BackendError, BackendResult, Diagnostic};
use parking_lot::{Mutex, RwLock};

use super::Variant;
use super::compose::{Target, compose};
#[cfg(not(target_family = "wasm"))]
use super::spirv;
use crate::device::{Gate, compiling, guarded, guarded_async};
use crate::unchecked;

/// Bytes of immediates that every kernel's parameters fit in.
pub(crate) const MAX_PARAMS: u32 = 128;

/// How many storage bindings a kernel has; kernels with the same numbers share their layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Signature {
    pub(crate) reads: u32,
    pub(crate) writes: u32,
}

/// The layouts that belong to a signature.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) signature: Signature,
    pub(crate) bindings: wgpu::BindGroupLayout,
    pipeline: wgpu::PipelineLayout,
}

/// A kernel ready to be launched.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: Arc<Layout>,
}

/// The compiled kernels of one device. Their number is bounded by the number of variants: shapes are parameters.
#[derive(Debug)]
pub(crate) struct Pipelines {
    device: wgpu::Device,
    target: Target,
    /// Whether the device takes SPIR-V.
    takes_spirv: bool,
    params_layout: wgpu::BindGroupLayout,
    kernels: RwLock<HashMap<Variant, Arc<Kernel>>>,
    layouts: Mutex<HashMap<Signature, Arc<Layout>>>,
}

impl Pipelines {
    pub(crate) fn new(device: &wgpu::Device, target: Target, takes_spirv: bool) -> Self {
        let params_layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some("params"),
            entries: &[wgpu::BindGroupLayoutEntry {
                binding: 0,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Uniform,
                    has_dynamic_offset: true,
                    min_binding_size: None,
                },
                count: None,
            }],
        });
        Self {
            device: device.clone(),
            target,
            takes_spirv,
            params_layout,
            kernels: RwLock::default(),
            layouts: Mutex::default(),
        }
    }

    pub(crate) fn params_layout(&self) -> &wgpu::BindGroupLayout {
        &self.params_layout
    }

    /// Number of kernels compiled so far.
    pub(crate) fn len(&self) -> usize {
        self.kernels.read().len()
    }

    pub(crate) fn target(&self) -> Target {
        self.target
    }

    /// The compiled kernel, compiling it at its first use.
    ///
    /// # Errors
    /// [`Kernel`](BackendError::Kernel) with what the compiler said.
    pub(crate) fn get(&self, variant: &Variant) -> BackendResult<Arc<Kernel>> {
        if let Some(kernel) = self.kernels.read().get(variant) {
            return Ok(Arc::clone(kernel));
        }
        // Compiled without the lock: another thread may compile the same, and the first to finish wins.
        let kernel = Arc::new(self.compile(variant)?);
        Ok(Arc::clone(self.kernels.write().entry(*variant).or_insert(kernel)))
    }

    /// [`get`](Self::get) that lets other tasks go on. In a browser, where the device's answer can only be awaited,
    /// this alone gives the compiler's error to the call.
    pub(crate) async fn compile_async(&self, variant: &Variant, gate: &Gate) -> BackendResult<()> {
        if self.kernels.read().contains_key(variant) {
            return Ok(());
        }
        let layout = self.layout_of(variant);
        let pipeline = guarded_async(&self.device, || {
            let _turn = gate.enter();
            self.pipeline(variant, &layout)
        });
        let kernel = Arc::new(finish(variant, pipeline.await, layout)?);
        self.kernels.write().entry(*variant).or_insert(kernel);
        Ok(())
    }

    fn compile(&self, variant: &Variant) -> BackendResult<Kernel> {
        let _span = tracing::debug_span!("compile", kernel = variant.kernel(), %variant).entered();
        let layout = self.layout_of(variant);
        finish(variant, guarded(&self.device, || self.pipeline(variant, &layout)), layout)
    }

    fn pipeline(&self, variant: &Variant, layout: &Layout) -> wgpu::ComputePipeline {
        let module = self.module(variant);
        let _compiling = compiling();
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(variant.kernel()),
            layout: Some(&layout.pipeline),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                // Every kernel writes its workgroup memory before it reads it.
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        })
    }

    fn module(&self, variant: &Variant) -> wgpu::ShaderModule {
        let text = compose(variant, self.target);
        if self.takes_spirv && variant.has_rolled_loops() {
            // What is wrong with a text is wgpu's to say.
            #[cfg(not(target_family = "wasm"))]
            if let Ok(spirv) = spirv::with_rolled_loops(&text, variant.names_elements()) {
                return unchecked::spirv_module(&self.device, variant.kernel(), spirv);
            }
        }
        unchecked::shader_module(&self.device, variant.kernel(), text)
    }

    fn layout_of(&self, variant: &Variant) -> Arc<Layout> {
        self.layout(Signature { reads: variant.source.reads, writes: variant.source.writes })
    }

    fn layout(&self, signature: Signature) -> Arc<Layout> {
        let mut layouts = self.layouts.lock();
        let layout = layouts.entry(signature).or_insert_with(|| Arc::new(self.create_layout(signature)));
        Arc::clone(layout)
    }

    fn create_layout(&self, signature: Signature) -> Layout {
        let entries: Vec<_> = (0..signature.reads + signature.writes)
            .map(|binding| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only: binding < signature.reads },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let bindings = self
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let groups: &[_] = if self.target.immediates {
            &[Some(&bindings)]
        } else {
            &[Some(&bindings), Some(&self.params_layout)]
        };
        let pipeline = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: groups,
            immediate_size: if self.target.immediates { MAX_PARAMS } else { 0 },
        });
        Layout { signature, bindings, pipeline }
    }
}

fn finish(
    variant: &Variant,
    pipeline: Result<wgpu::ComputePipeline, wgpu::Error>,
    layout: Arc<Layout>,
) -> BackendResult<Kernel> {
    match pipeline {
        Ok(pipeline) => Ok(Kernel { pipeline, layout }),
        Err(error) => Err(BackendError::Kernel {
            name: variant.kernel().to_owned(),
            variant: variant.to_string(),
            source: Diagnostic(error.to_string()),
        }),
    }
}
