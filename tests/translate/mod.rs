//! Kernels in the languages of Metal, Direct3D and OpenGL, written by naga with the options that wgpu's own
//! backends give it: slots counted as their pipeline layouts count them, no run-time checks, workgroup memory
//! left as it is.

mod slots;

use backend_webgpu::variants::{Requirements, Variant};
use naga::back::{glsl, hlsl, msl};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::ModuleInfo;
#[cfg(test)]
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{Module, ShaderStage};
use slots::Slots;

/// A language that a driver is given instead of SPIR-V, in one of the versions that wgpu chooses by the
/// system.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    /// Metal's, of a major and minor version.
    Msl(u8, u8),
    /// Direct3D's language.
    Hlsl(hlsl::ShaderModel),
    /// The language of OpenGL and OpenGL ES.
    Glsl(glsl::Version),
}

/// Why no device behind a language is ever given a variant.
pub(crate) type Reason = &'static str;

impl Language {
    /// The oldest version with compute shaders that wgpu opens a device for, and a newer one where that has
    /// more.
    pub(crate) const ALL: [Self; 7] = [
        // macOS 10.15, and 14.
        Self::Msl(2, 2),
        Self::Msl(3, 1),
        // The old compiler FXC, and DXC.
        Self::Hlsl(hlsl::ShaderModel::V5_1),
        Self::Hlsl(hlsl::ShaderModel::V6_2),
        Self::Glsl(glsl::Version::Desktop(430)),
        Self::Glsl(glsl::Version::Desktop(450)),
        Self::Glsl(glsl::Version::Embedded { version: 310, is_webgl: false }),
    ];

    /// What keeps every device of this language from the variant, if something does.
    pub(crate) fn never_given(self, variant: &Variant) -> Option<Reason> {
        let Requirements { f16, subgroups, cooperative_matrices, .. } = variant.requires();
        match self {
            Self::Msl(..) if cooperative_matrices => {
                Some("Metal's matrices are 8×8, as wgpu reports; the kernels' are 16×16")
            }
            _ if cooperative_matrices => Some(
                "naga writes cooperative matrices neither in HLSL nor in GLSL, and wgpu offers none there",
            ),
            Self::Msl(major, _) if subgroups && major < 3 => Some("wgpu's subgroups on Metal are newer"),
            Self::Hlsl(hlsl::ShaderModel::V5_1) if f16 || subgroups => {
                Some("FXC has neither f16 nor subgroups")
            }
            Self::Hlsl(_) if variant.libs().iter().any(|lib| lib.name == "lib/row_shuffles") => {
                Some("naga writes subgroups' indices in a struct without semantics")
            }
            Self::Glsl(_) if f16 => Some("naga writes no f16 in GLSL, and wgpu offers none on OpenGL"),
            Self::Glsl(_) if subgroups => Some("wgpu offers no subgroups on OpenGL"),
            _ => None,
        }
    }

    /// The module's text.
    pub(crate) fn translate(self, module: &Module, info: &ModuleInfo) -> Result<String, String> {
        match self {
            Self::Msl(major, minor) => to_msl((major, minor), module, info),
            Self::Hlsl(model) => to_hlsl(model, module, info),
            Self::Glsl(version) => to_glsl(version, module, info),
        }
    }
}

/// The kernels' only entry point.
const MAIN: &str = "main";

const UNCHECKED: BoundsCheckPolicies = BoundsCheckPolicies {
    index: BoundsCheckPolicy::Unchecked,
    buffer: BoundsCheckPolicy::Unchecked,
    image_load: BoundsCheckPolicy::Unchecked,
    binding_array: BoundsCheckPolicy::Unchecked,
};

fn to_msl(lang_version: (u8, u8), module: &Module, info: &ModuleInfo) -> Result<String, String> {
    let options = msl::Options {
        lang_version,
        per_entry_point_map: [(MAIN.to_owned(), Slots::of(module).msl())].into(),
        fake_missing_bindings: false,
        bounds_check_policies: UNCHECKED,
        zero_initialize_workgroup_memory: false,
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..Default::default()
    };
    let pipeline = msl::PipelineOptions {
        entry_point: Some((ShaderStage::Compute, MAIN.to_owned())),
        vertex_pulling_transform: true,
        ..Default::default()
    };
    let (text, translated) =
        msl::write_string(module, info, &options, &pipeline).map_err(|error| error.to_string())?;
    named(&translated.entry_point_names).map(|()| text)
}

fn to_hlsl(shader_model: hlsl::ShaderModel, module: &Module, info: &ModuleInfo) -> Result<String, String> {
    let slots = Slots::of(module);
    let options = hlsl::Options {
        shader_model,
        binding_map: slots.hlsl(),
        immediates_target: slots.immediates.then(hlsl::BindTarget::default),
        special_constants_binding: Some(slots.hlsl_special_constants()),
        fake_missing_bindings: false,
        zero_initialize_workgroup_memory: false,
        restrict_indexing: false,
        force_loop_bounding: false,
        ..Default::default()
    };
    let pipeline = hlsl::PipelineOptions { entry_point: Some((ShaderStage::Compute, MAIN.to_owned())) };
    let mut text = String::new();
    let translated = hlsl::Writer::new(&mut text, &options, &pipeline)
        .write(module, info, None)
        .map_err(|error| error.to_string())?;
    named(&translated.entry_point_names).map(|()| text)
}

fn to_glsl(version: glsl::Version, module: &Module, info: &ModuleInfo) -> Result<String, String> {
    let options = glsl::Options {
        version,
        writer_flags: glsl::WriterFlags::ADJUST_COORDINATE_SPACE | glsl::WriterFlags::FORCE_POINT_SIZE,
        binding_map: Slots::of(module).glsl(),
        zero_initialize_workgroup_memory: false,
    };
    let pipeline = glsl::PipelineOptions {
        shader_stage: ShaderStage::Compute,
        entry_point: MAIN.to_owned(),
        multiview: None,
    };
    let mut text = String::new();
    glsl::Writer::new(&mut text, module, info, &options, &pipeline, UNCHECKED)
        .and_then(|mut writer| writer.write())
        .map_err(|error| error.to_string())?;
    Ok(text)
}

/// Both writers tell what is wrong with an entry point in the place of its name.
fn named<E: std::fmt::Display>(names: &[Result<String, E>]) -> Result<(), String> {
    match names {
        [Ok(_)] => Ok(()),
        [Err(error)] => Err(error.to_string()),
        _ => Err(format!("{} entry points", names.len())),
    }
}

#[test]
fn what_a_language_lacks_is_an_error() {
    let text = "enable f16;
        @group(0) @binding(0) var<storage, read_write> x: array<f16>;
        @compute @workgroup_size(1) fn main() { x[0] = x[0] * 2.0h; }";
    let module = naga::front::wgsl::parse_str(text).unwrap();
    let info =
        Validator::new(ValidationFlags::all(), Capabilities::SHADER_FLOAT16).validate(&module).unwrap();
    let translated = |language: Language| language.translate(&module, &info);
    assert!(translated(Language::Msl(2, 2)).unwrap().contains("half"));
    assert!(translated(Language::Hlsl(hlsl::ShaderModel::V6_2)).unwrap().contains("half"));
    assert!(translated(Language::Glsl(glsl::Version::Desktop(450))).is_err());
}
