//! What the command prints, as text or as JSON.

use std::fmt::Write;
use std::path::Path;

use backend_api::DeviceInfo;
use minilm::{Encoder, ModelDir, Passage};
use serde::Serialize;

/// Characters of a passage that the text form shows.
const EXCERPT: usize = 240;

/// The answer to a question and how it was found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    query: String,
    /// The backend's name in the registry.
    backend: String,
    device: Device,
    reason: String,
    model: String,
    timings: Timings,
    /// Best first.
    results: Vec<Hit>,
}

/// A [`DeviceInfo`] for JSON.
#[derive(Debug, Serialize)]
struct Device {
    selector: String,
    name: String,
    api: String,
    driver: String,
    kind: String,
}

/// Wall-clock times, and the speed of embedding the passages.
#[derive(Debug, Serialize)]
pub(crate) struct Timings {
    open_seconds: f64,
    load_seconds: f64,
    query_seconds: f64,
    embed_seconds: f64,
    passages: usize,
    tokens: usize,
    passages_per_second: f64,
    tokens_per_second: f64,
}

/// A passage that was found.
#[derive(Debug, Serialize)]
pub(crate) struct Hit {
    /// Cosine similarity to the question.
    score: f32,
    file: String,
    line: usize,
    text: String,
}

impl Timings {
    /// Timings from the seconds that it took to open the backend, load the model, embed the query and embed the passages,
    /// from the number of passages and from that of their tokens.
    pub(crate) fn new(seconds: [f64; 4], passages: usize, tokens: usize) -> Self {
        let [open_seconds, load_seconds, query_seconds, embed_seconds] = seconds;
        Self {
            open_seconds,
            load_seconds,
            query_seconds,
            embed_seconds,
            passages,
            tokens,
            passages_per_second: passages as f64 / embed_seconds,
            tokens_per_second: tokens as f64 / embed_seconds,
        }
    }
}

impl Hit {
    pub(crate) fn new(score: f32, file: &Path, passage: &Passage) -> Self {
        Self { score, file: file.display().to_string(), line: passage.line, text: passage.text.clone() }
    }
}

impl From<DeviceInfo> for Device {
    fn from(info: DeviceInfo) -> Self {
        Self {
            selector: info.selector,
            name: info.name,
            api: info.api,
            driver: info.driver,
            kind: format!("{:?}", info.kind),
        }
    }
}

impl Device {
    fn line(&self) -> String {
        let driver = if self.driver.is_empty() { String::new() } else { format!(", {}", self.driver) };
        format!("{:<10} {} ({}, {}{driver})", self.selector, self.name, self.api, self.kind)
    }
}

impl Report {
    /// The answer of a model on a device that was chosen for a reason, best hits first.
    pub(crate) fn new(
        query: &str,
        model: &ModelDir,
        encoder: &Encoder,
        (device, reason): (DeviceInfo, String),
        timings: Timings,
        results: Vec<Hit>,
    ) -> Self {
        Self {
            query: query.to_owned(),
            backend: encoder.model().backend().name().to_owned(),
            device: device.into(),
            reason,
            model: model.path().display().to_string(),
            timings,
            results,
        }
    }

    pub(crate) fn json(&self) -> serde_json::Result<String> {
        document(self)
    }

    pub(crate) fn text(&self) -> String {
        let t = &self.timings;
        let mut text = format!(
            "device    {}\n\
             chosen    {}\n\
             opened    in {:.2} s, model loaded in {:.2} s, query embedded in {:.2} s\n\
             embedded  {} passages, {} tokens in {:.2} s: {:.0} passages/s, {:.0} tokens/s\n",
            self.device.line(),
            self.reason,
            t.open_seconds,
            t.load_seconds,
            t.query_seconds,
            t.passages,
            t.tokens,
            t.embed_seconds,
            t.passages_per_second,
            t.tokens_per_second,
        );
        for hit in &self.results {
            // Writing to a String can't fail.
            _ = write!(
                text,
                "\n{:.3}  {}:{}\n       {}\n",
                hit.score,
                hit.file,
                hit.line,
                excerpt(&hit.text)
            );
        }
        text
    }
}

/// The devices of `--list`.
pub(crate) fn devices(infos: &[DeviceInfo], json: bool) -> serde_json::Result<String> {
    let devices: Vec<Device> = infos.iter().cloned().map(Device::from).collect();
    if json {
        return document(&devices);
    }
    Ok(devices.iter().map(|device| device.line() + "\n").collect())
}

fn document(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(|json| json + "\n")
}

fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_end_between_characters() {
        assert_eq!(excerpt("äöü"), "äöü");
        assert_eq!(excerpt(&"ä".repeat(EXCERPT + 1)), "ä".repeat(EXCERPT) + "…");
    }
}
