//! The parameters of a kernel: their names, types and places are declared once, in Rust, and the composer writes WGSL's
//! `Params` from them.

/// One field of a kernel's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in WGSL and in Rust.
    pub name: &'static str,
    /// Byte offset in the Rust struct, for tests; no page loads it.
    #[cfg(not(target_family = "wasm"))]
    pub offset: usize,
    /// Bytes in the Rust struct, for tests; no page loads it.
    #[cfg(not(target_family = "wasm"))]
    pub size: usize,
    /// Its type in WGSL.
    pub wgsl: &'static str,
}

impl Field {
    const NONE: Self = Self {
        name: "",
        #[cfg(not(target_family = "wasm"))]
        offset: 0,
        #[cfg(not(target_family = "wasm"))]
        size: 0,
        wgsl: "",
    };
}

/// The name of a field that fills the bytes up to where WGSL aligns the next field, or the structure's end. WGSL leaves
/// such bytes out by itself.
pub const PADDING: &str = "padding";

/// A type that a field of a kernel's parameters can have: one of WGSL's, or a struct that [`params!`] has declared,
/// whose fields stand in the place of it.
pub(crate) trait FieldType {
    /// Its name in WGSL; a struct has none.
    const WGSL: &'static str = "";
    /// The fields of a struct, those of its structs in their places.
    const FIELDS: &'static [Field] = &[];
    /// Fields in WGSL.
    const COUNT: usize = 1;
}

/// A field of WGSL's `Params` for each one that a struct declares, and for one that is a struct, in its place, each of
/// its own with the offset in the outer struct.
pub(crate) const fn flattened<const N: usize>(declared: &[(Field, &'static [Field])]) -> [Field; N] {
    let mut fields = [Field::NONE; N];
    let (mut i, mut count) = (0, 0);
    while i < declared.len() {
        let (field, inner) = declared[i];
        if inner.is_empty() {
            fields[count] = field;
            count += 1;
        }
        let mut j = 0;
        while j < inner.len() {
            fields[count] = inner[j];
            #[cfg(not(target_family = "wasm"))]
            {
                fields[count].offset += field.offset;
            }
            count += 1;
            j += 1;
        }
        i += 1;
    }
    fields
}

macro_rules! field_types {
    ($($type:ty: $wgsl:literal),+ $(,)?) => { $(impl FieldType for $type { const WGSL: &'static str = $wgsl; })+ };
}

field_types! {
    u32: "u32",
    i32: "i32",
    f32: "f32",
    [u32; 2]: "vec2<u32>",
    [u32; 4]: "vec4<u32>",
    [[u32; 4]; 2]: "array<vec4<u32>, 2>",
    [[u32; 4]; 4]: "array<vec4<u32>, 4>",
    [[u32; 4]; 5]: "array<vec4<u32>, 5>",
    [[u32; 4]; 6]: "array<vec4<u32>, 6>",
}

/// Declares the parameters of a kernel as a `#[repr(C)]` struct of 4-byte fields and 16-byte vectors that can
/// be copied to the device, with its fields for the WGSL declaration as `FIELDS`. A field may also be a struct that this
/// macro has declared, for parameters that several kernels have: WGSL's `Params` has its fields instead.
macro_rules! params {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty),+ $(,)? }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
        $vis struct $name { $($(#[$field_meta])* $vis $field: $type),+ }

        impl $crate::kernels::FieldType for $name {
            const FIELDS: &'static [$crate::kernels::Field] =
                &$crate::kernels::flattened::<{ <$name as $crate::kernels::FieldType>::COUNT }>(&[$((
                    $crate::kernels::Field {
                        name: stringify!($field),
                        #[cfg(not(target_family = "wasm"))]
                        offset: std::mem::offset_of!($name, $field),
                        #[cfg(not(target_family = "wasm"))]
                        size: size_of::<$type>(),
                        wgsl: <$type as $crate::kernels::FieldType>::WGSL,
                    },
                    <$type as $crate::kernels::FieldType>::FIELDS,
                )),+]);
            const COUNT: usize = 0 $(+ <$type as $crate::kernels::FieldType>::COUNT)+;
        }
    };
}
pub(crate) use params;

#[cfg(test)]
mod tests {
    use super::*;

    params! { struct Place { start: u32, row: u32 } }
    params! { struct Scaled { place: Place, alpha: f32 } }
    params! { struct Product { m: u32, b: Scaled, origin: [u32; 2] } }

    #[test]
    fn parameters_have_the_fields_of_their_structs() {
        let fields: Vec<_> =
            Product::FIELDS.iter().map(|field| (field.name, field.wgsl, field.offset, field.size)).collect();
        let expected = [
            ("m", "u32", 0, 4),
            ("start", "u32", 4, 4),
            ("row", "u32", 8, 4),
            ("alpha", "f32", 12, 4),
            ("origin", "vec2<u32>", 16, 8),
        ];
        assert_eq!(fields, expected);
    }
}
