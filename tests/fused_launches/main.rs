//! Graphs in which one launch takes the place of several calls', on every adapter, against f64: with all that each call writes, and
//! only where the calls are what it makes.

mod apart;
#[path = "../forced.rs"]
mod forced;
mod memory;
mod normed_sums;
mod router;
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    forced::run(|device| {
        vec![
            device.trial("router/random", router::random),
            device.trial("router/apart", router::apart),
            device.trial("router/warm_up", router::warm_up),
            device.trial("router/again", router::again),
            device.trial("normed_sums/random", normed_sums::random),
            device.trial("normed_sums/apart", normed_sums::apart),
        ]
    })
}
