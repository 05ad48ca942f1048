//! What wgpu makes of a kernel, for tests without a device.

use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};

use super::{Target, Variant, compose};

/// The SPIR-V of a variant, as wgpu makes it for a device with cooperative matrices.
pub(crate) fn translate(variant: &Variant, immediates: bool) -> Result<Vec<u32>, String> {
    let text = compose(variant, Target { immediates, unroll: true });
    let module = naga::front::wgsl::parse_str(&text).map_err(|error| error.emit_to_string(&text))?;
    let mut capabilities = Capabilities::COOPERATIVE_MATRIX
        | Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    capabilities.set(Capabilities::IMMEDIATES, immediates);
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|error| error.emit_to_string(&text))?;
    let options = spv::Options { lang_version: (1, 4), ..Default::default() };
    spv::write_vec(&module, &info, &options, None).map_err(|error| error.to_string())
}
