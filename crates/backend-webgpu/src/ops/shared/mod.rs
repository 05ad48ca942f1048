//! What launchers of several families call.

#[cfg(test)]
pub(super) mod bound_windows;
pub(super) mod cooperative_tile;
pub(super) mod iterations;
pub(super) mod kernel_override;
pub(super) mod long_work;
pub(super) mod pace;
pub(super) mod piece_lengths;
pub(super) mod row_groups;
pub(super) mod row_top_k;
pub(super) mod rows;
pub(super) mod seams;
pub(super) mod self_test;
pub(super) mod strided_loops;
pub(super) mod tensor_cores;
pub(super) mod text;
pub(super) mod tile;
pub(super) mod type_map;
pub(super) mod vec_width;
pub(super) mod verdicts;

/// Whether this isn't a page. No browser offers tensor cores, and a page needn't load what plans and launches their kernels.
pub(super) const IS_NATIVE: bool = cfg!(not(target_family = "wasm"));
