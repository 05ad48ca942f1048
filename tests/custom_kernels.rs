//! Kernels of the caller's own on every adapter: right ones against results computed here, wrong ones with the
//! line that is wrong, bad launches, and that none of them hurts what comes after.
