//! `cargo xtask`: the chores of this project.

fn main() {}
