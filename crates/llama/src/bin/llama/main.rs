//! The command `llama`.

fn main() {}
