//! Options of a session.

#[cfg(doc)]
use backend_api::MathMode;

use crate::error::{Error, Result};

/// The name by which sessions ask for the provider.
pub(crate) const NAME: &str = "WebGpuComputeExecutionProvider";

/// Which subgraphs are worth a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Subgraphs with a matrix product, a convolution or attention.
    #[default]
    Compute,
    /// All subgraphs that can be computed.
    All,
}

/// With what arithmetic models of f32 are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Precision {
    /// The model's.
    #[default]
    Model,
    /// f32, but large matrix products may be made of products of f16 parts ([`MathMode::EmulatedF32`]).
    EmulatedF32,
    /// f16, with sums of f32.
    F16,
}

/// What a session asks of the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Another device than the session's, such as `"webgpu:1"` or `"cpu"`.
    pub(crate) selector: Option<String>,
    /// Which subgraphs are taken.
    pub(crate) scope: Scope,
    /// How models of f32 are computed.
    pub(crate) precision: Precision,
    /// Whether ONNX Runtime is to write a model of EPContext nodes, which the provider doesn't make.
    pub(crate) context: bool,
}

impl Options {
    /// Takes an entry of a session's configuration; entries that mean nothing to the provider are passed over.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<()> {
        if key == "ep.context_enable" {
            self.context = value == "1";
        }
        let prefix = format!("ep.{}.", NAME.to_lowercase());
        let Some(key) = key.strip_prefix(&prefix) else { return Ok(()) };
        match (key, value) {
            ("selector", "") => self.selector = None,
            ("selector", name) => self.selector = Some(name.to_owned()),
            ("claim", "compute") => self.scope = Scope::Compute,
            ("claim", "all") => self.scope = Scope::All,
            ("claim", other) => {
                return Err(Error::invalid(format!("the option claim is {other:?}, not compute or all")));
            }
            ("precision", "model") => self.precision = Precision::Model,
            ("precision", "f16") => self.precision = Precision::F16,
            ("precision", "emulated_f32") => self.precision = Precision::EmulatedF32,
            ("precision", other) => {
                return Err(Error::invalid(format!(
                    "the option precision is {other:?}, not model, emulated_f32 or f16"
                )));
            }
            (other, _) => {
                return Err(Error::invalid(format!(
                    "{NAME} has the options selector, claim and precision, not {other:?}"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_providers_own_entries_are_read() {
        let mut options = Options::default();
        options.set("session.intra_op.allow_spinning", "0").unwrap();
        options.set("ep.webgpucomputeexecutionprovider.claim", "all").unwrap();
        options.set("ep.webgpucomputeexecutionprovider.selector", "webgpu:1").unwrap();
        options.set("ep.webgpucomputeexecutionprovider.precision", "f16").unwrap();
        let selector = Some("webgpu:1".to_owned());
        assert_eq!(
            options,
            Options { selector, scope: Scope::All, precision: Precision::F16, context: false }
        );
        options.set("ep.context_enable", "1").unwrap();
        assert!(options.context);
        options.set("ep.webgpucomputeexecutionprovider.precision", "emulated_f32").unwrap();
        assert_eq!(options.precision, Precision::EmulatedF32);
        assert!(options.set("ep.webgpucomputeexecutionprovider.precision", "f8").is_err());
        assert!(options.set("ep.webgpucomputeexecutionprovider.claim", "some").is_err());
        assert!(options.set("ep.webgpucomputeexecutionprovider.selectr", "cpu").is_err());
    }
}
