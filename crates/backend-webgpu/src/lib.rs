//! A WebGPU compute backend for ML runtimes: BLAS and DNN operations over wgpu and WGSL.
