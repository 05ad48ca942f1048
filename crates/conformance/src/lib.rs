//! The ComputeBackend contract as a test suite: f64 oracles, case grids and comparers that run on any backend.
