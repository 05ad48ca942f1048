//! Pipelines, compiled once for each variant.

use std::collections::HashMap;
use std::sync::Arc;

use backend_api::{BackendError, BackendResult, Diagnostic, DiagnosticKind};

use super::compose::compose;
#[cfg(not(target_family = "wasm"))]
use super::spirv;
use super::{Target, Variant};
use crate::device::{GlLock, GuardedDevice, compiling, guarded, guarded_async};
#[cfg(feature = "count-out-of-bounds")]
use crate::out_of_bounds;
use crate::sync::{Mutex, RwLock};
use crate::unchecked;

/// Bytes of immediates that every kernel's parameters fit in.
pub(crate) const MAX_PARAMS: u32 = 128;

/// Bytes of immediates that are asked for.
#[cfg(not(feature = "count-out-of-bounds"))]
pub(crate) const MAX_IMMEDIATES: u32 = MAX_PARAMS;
#[cfg(feature = "count-out-of-bounds")]
pub(crate) const MAX_IMMEDIATES: u32 = MAX_PARAMS + out_of_bounds::RANGES as u32;

/// How many storage bindings a kernel has; kernels with equal counts share their layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Signature {
    pub(crate) reads: u32,
    writes: u32,
    /// Whether parameters are a uniform buffer rather than immediates.
    pub(crate) uniform: bool,
}

impl Signature {
    pub(crate) const fn new(reads: usize, writes: usize, uniform: bool) -> Self {
        // A kernel's text names each of them.
        Self { reads: reads as u32, writes: writes as u32, uniform }
    }
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
    #[cfg(feature = "count-out-of-bounds")]
    pub(crate) watch: Option<out_of_bounds::Watch>,
}

/// The compiled kernels of one device. Their number is bounded by the number of variants: shapes are
/// parameters.
#[derive(Debug)]
pub(crate) struct Pipelines {
    device: GuardedDevice,
    target: Target,
    /// Whether the device takes SPIR-V.
    takes_spirv: bool,
    cache: Option<wgpu::PipelineCache>,
    params_layout: wgpu::BindGroupLayout,
    kernels: RwLock<HashMap<Variant, Arc<Kernel>>>,
    layouts: Mutex<HashMap<Signature, Arc<Layout>>>,
    #[cfg(feature = "count-out-of-bounds")]
    counters: out_of_bounds::Counters,
}

impl Pipelines {
    pub(crate) fn new(device: &GuardedDevice, target: Target, takes_spirv: bool) -> Self {
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
            cache: None,
            params_layout,
            kernels: RwLock::default(),
            layouts: Mutex::default(),
            #[cfg(feature = "count-out-of-bounds")]
            counters: out_of_bounds::Counters::new(device),
        }
    }

    /// Has the driver look for pipelines in `cache`, and keep there what it compiles.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn use_cache(&mut self, cache: Option<wgpu::PipelineCache>) {
        self.cache = cache;
    }

    pub(crate) fn params_layout(&self) -> &wgpu::BindGroupLayout {
        &self.params_layout
    }

    /// Number of kernels compiled so far.
    pub(crate) fn len(&self) -> usize {
        self.kernels.read().len()
    }

    #[cfg(feature = "count-out-of-bounds")]
    pub(crate) fn counters(&self) -> &out_of_bounds::Counters {
        &self.counters
    }

    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn target(&self) -> Target {
        self.target
    }

    /// Bytes of a kernel's text that is to be compiled, 0 for one that has been.
    #[cfg(not(any(target_family = "wasm", feature = "shuttle")))]
    pub(crate) fn text_length(&self, variant: &Variant) -> usize {
        let is_compiled = self.kernels.read().contains_key(variant);
        if is_compiled { 0 } else { compose(variant, self.target).len() }
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

    /// [`get`](Self::get) that lets other tasks go on. In a browser, where the device's answer can only be
    /// awaited, this alone gives the compiler's error to the call.
    pub(crate) async fn compile_async(&self, variant: &Variant, gl_lock: &GlLock) -> BackendResult<()> {
        if self.kernels.read().contains_key(variant) {
            return Ok(());
        }
        self.require_room(variant)?;
        let layout = self.layout_of(variant);
        let pipeline = guarded_async(&self.device, || {
            let _guard = gl_lock.lock();
            let _compiling = compiling();
            self.pipeline(variant, &layout)
        });
        let kernel = Arc::new(self.finish(variant, pipeline.await, layout)?);
        self.kernels.write().entry(*variant).or_insert(kernel);
        Ok(())
    }

    /// Binds a buffer as kernels do, which the device refuses for one that is destroyed or another device's.
    /// In a browser the answer is a late error.
    pub(crate) fn check_buffer(&self, buffer: &wgpu::Buffer) -> Result<(), wgpu::Error> {
        let layout = self.layout(Signature::new(1, 0, false));
        let size = wgpu::BufferSize::new(wgpu::COPY_BUFFER_ALIGNMENT);
        let binding = wgpu::BufferBinding { buffer, offset: 0, size };
        guarded(&self.device, || {
            _ = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some("import"),
                layout: &layout.bindings,
                entries: &[wgpu::BindGroupEntry {
                    binding: 0,
                    resource: wgpu::BindingResource::Buffer(binding),
                }],
            });
        })
    }

    /// Refuses a kernel whose workgroups the device has no room for: wgpu compares no kernel with the limit of workgroup
    /// memory, and what drivers do with more isn't defined. Planners choose none.
    fn require_room(&self, variant: &Variant) -> BackendResult<()> {
        let (workgroup, limits) = (variant.workgroup, self.device.limits());
        let numbers = [
            ("invocations", workgroup.invocations, limits.max_compute_invocations_per_workgroup),
            ("bytes", workgroup.bytes, limits.max_compute_workgroup_storage_size),
        ];
        match numbers.into_iter().find(|(_, number, max)| number > max) {
            None => Ok(()),
            Some((what, number, max)) => {
                let said = format!("a workgroup has {number} {what}, the limit is {max}");
                Err(kernel_error(variant, Diagnostic::new(said).of_kind(DiagnosticKind::Limit)))
            }
        }
    }

    fn compile(&self, variant: &Variant) -> BackendResult<Kernel> {
        self.require_room(variant)?;
        let _span = tracing::debug_span!("compile", kernel = variant.kernel(), %variant).entered();
        let layout = self.layout_of(variant);
        // Outside of the error scopes, so that nothing waits within.
        let compiling = compiling();
        let pipeline = guarded(&self.device, || self.pipeline(variant, &layout));
        drop(compiling);
        self.finish(variant, pipeline, layout)
    }

    /// Compiles a kernel of the caller's, with the shader compiler's own checks of indices, divisions and
    /// loops, and with workgroup memory that begins as zeros.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn compile_custom(
        &self,
        name: &str,
        source: wgpu::ShaderSource<'static>,
        entry_point: &str,
        signature: Signature,
    ) -> Result<Kernel, wgpu::Error> {
        let layout = self.layout(signature);
        let compiling = compiling();
        let pipeline = guarded(&self.device, || {
            let descriptor = wgpu::ShaderModuleDescriptor { label: Some(name), source };
            let module = self.device.create_shader_module(descriptor);
            let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(name),
                layout: Some(&layout.pipeline),
                module: &module,
                entry_point: Some(entry_point),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: self.cache.as_ref(),
            });
            // A pipeline that the driver couldn't make may be told of only by its first use, which would spoil
            // what is recorded with it.
            let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).set_pipeline(&pipeline);
            _ = encoder.finish();
            pipeline
        });
        drop(compiling);
        Ok(Kernel {
            pipeline: pipeline?,
            layout,
            #[cfg(feature = "count-out-of-bounds")]
            watch: None,
        })
    }

    fn pipeline(&self, variant: &Variant, layout: &Layout) -> wgpu::ComputePipeline {
        let module = self.module(variant);
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
            cache: self.cache.as_ref(),
        })
    }

    fn module(&self, variant: &Variant) -> wgpu::ShaderModule {
        let text = compose(variant, self.target);
        #[cfg(test)]
        let text = super::emulated::fragments(variant, text, self.device.features());
        #[cfg(feature = "count-out-of-bounds")]
        if let Some(module) = self.counters.instrument(variant, &text) {
            return self.counted_module(variant, module);
        }
        if self.takes_spirv && variant.has_rolled_loops() {
            // What is wrong with a text is wgpu's to say.
            #[cfg(not(target_family = "wasm"))]
            if let Ok(spirv) = spirv::with_rolled_loops(&text, variant.requires().element_access) {
                return unchecked::spirv_module(&self.device, variant.kernel(), spirv);
            }
        }
        unchecked::shader_module(&self.device, variant.kernel(), text)
    }

    /// A kernel whose accesses are counted, which wgpu takes as naga has it.
    #[cfg(feature = "count-out-of-bounds")]
    fn counted_module(&self, variant: &Variant, module: naga::Module) -> wgpu::ShaderModule {
        if self.takes_spirv
            && variant.has_rolled_loops()
            && let Ok(spirv) = spirv::of_module(&module, "", variant.requires().element_access)
        {
            return unchecked::spirv_module(&self.device, variant.kernel(), spirv);
        }
        unchecked::counted_module(&self.device, variant.kernel(), module)
    }

    fn layout_of(&self, variant: &Variant) -> Arc<Layout> {
        // What counts accesses is written like an output.
        let more = usize::from(cfg!(feature = "count-out-of-bounds"));
        let (reads, writes) = (variant.source.reads.len(), variant.source.writes.len() + more);
        self.layout(Signature::new(reads, writes, !self.target.immediates))
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
        let groups: &[_] = if signature.uniform {
            &[Some(&bindings), Some(&self.params_layout)]
        } else {
            &[Some(&bindings)]
        };
        let pipeline = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: groups,
            immediate_size: if self.target.immediates && !signature.uniform { MAX_IMMEDIATES } else { 0 },
        });
        Layout { signature, bindings, pipeline }
    }

    fn finish(
        &self,
        variant: &Variant,
        pipeline: Result<wgpu::ComputePipeline, wgpu::Error>,
        layout: Arc<Layout>,
    ) -> BackendResult<Kernel> {
        match pipeline {
            Ok(pipeline) => Ok(Kernel {
                pipeline,
                layout,
                #[cfg(feature = "count-out-of-bounds")]
                watch: Some(self.counters.watch(variant)),
            }),
            Err(error) => Err(kernel_error(variant, Diagnostic::new(error.to_string()))),
        }
    }
}

fn kernel_error(variant: &Variant, source: Diagnostic) -> BackendError {
    BackendError::Kernel { name: variant.kernel().to_owned(), variant: variant.to_string(), source }
}
