//! What the commands print.

use std::fmt;
use std::io::{self, Write};

use backend_api::MathMode;
use llama::Session;
use serde::Serialize;

use crate::args::Common;
use crate::loaded::Loaded;
use crate::sampling::SamplingArgs;

/// The model, the device and the settings of a report in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct About {
    model: String,
    file: String,
    size: usize,
    parameters: usize,
    backend: String,
    device: String,
    api: String,
    driver: String,
    ctx: usize,
    precision: &'static str,
    cache_type: String,
    math: &'static str,
    load_seconds: f64,
}

impl About {
    /// The settings are those that were in effect, whether or not they were asked for.
    pub(crate) fn new(loaded: &Loaded, common: &Common, session: &Session) -> Self {
        let device = &loaded.device;
        Self {
            model: loaded.name.clone(),
            file: common.model.display().to_string(),
            size: loaded.bytes,
            parameters: loaded.parameters,
            backend: device.selector.clone(),
            device: device.name.clone(),
            api: device.api.clone(),
            driver: device.driver.clone(),
            ctx: session.context(),
            precision: session.model().precision().name(),
            cache_type: session.cache_format().to_string(),
            math: match common.math.mode() {
                MathMode::Int8 => "int8",
                _ => "standard",
            },
            load_seconds: loaded.seconds,
        }
    }
}

/// A number with what it counts, as "1 token" and "2 tokens".
pub(crate) fn count(number: usize, of: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {of}{ending}")
}

/// Prints a document.
pub(crate) fn json(document: &impl Serialize) -> anyhow::Result<()> {
    line(format_args!("{}", serde_json::to_string_pretty(document)?))
}

/// Prints a line. A closed pipe is an error, where `println!` panics.
pub(crate) fn line(line: fmt::Arguments<'_>) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{line}")?)
}

/// Prints a text, at once.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The device, on the standard error.
pub(crate) fn device(loaded: &Loaded) {
    let device = &loaded.device;
    model_cli::note(format_args!(
        "{} on {} ({}, {}; {})",
        loaded.name, device.name, device.selector, device.api, loaded.reason
    ));
}

/// A seed that nobody chose, on the standard error: with it, the text can be made again.
pub(crate) fn seed(sampling: &SamplingArgs) {
    if sampling.seed.is_random {
        model_cli::note(format_args!("llama: --seed {} was drawn", sampling.seed.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_no_plural() {
        assert_eq!([0, 1, 2].map(|number| count(number, "token")), ["0 tokens", "1 token", "2 tokens"]);
    }
}
