//! The compute backend that always works: safe, parallel Rust on the host processor.
