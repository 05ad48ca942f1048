//! Parameters from the command line.

use std::path::Path;

use backend_api::DType;
use backend_webgpu::{ParamField, ParamsInfo};
use half::f16;

use crate::files;
use crate::operand::{dtype, push};

/// The bytes of a kernel's parameters, as many as it has: fields by name, or typed numbers in order, or a file.
///
/// # Errors
/// What is wrong with the text, or which field is missing.
pub(crate) fn bytes(text: &str, info: Option<&ParamsInfo>) -> Result<Vec<u8>, String> {
    if let Some(path) = text.strip_prefix('@') {
        let info = info.ok_or("the kernel has no parameters")?;
        let whose = format!("the parameters ({}) have", fields(info));
        return files::read(Path::new(path), info.bytes, &whose);
    }
    let items: Vec<&str> = text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    if items.iter().any(|item| item.contains('=')) {
        let info = info.ok_or("the kernel has no parameters")?;
        return named(&items, info);
    }
    let mut bytes = Vec::new();
    for item in items {
        let (dtype, number) =
            item.split_once(':').ok_or_else(|| format!("{item:?} is no NAME=VALUE or TYPE:VALUE"))?;
        let dtype = self::dtype(dtype)?;
        let offset = bytes.len();
        let covers = |field: &&ParamField| (field.offset..field.offset + field.bytes).contains(&offset);
        // Between fields, and in those of other types, any number will do.
        let field = info.and_then(|info| info.fields.iter().find(covers));
        if let Some(field) = field.filter(|field| scalar(field).is_ok_and(|own| own != dtype)) {
            return Err(format!("byte {offset} is {}: {}, --params gives {item}", field.name, field.ty));
        }
        push(&mut bytes, dtype, checked(number, dtype)?);
    }
    complete(bytes, "--params", info)
}

/// As many bytes as the kernel has parameters.
fn complete(bytes: Vec<u8>, from: &str, info: Option<&ParamsInfo>) -> Result<Vec<u8>, String> {
    let (have, need) = (bytes.len(), info.map_or(0, |info| info.bytes));
    match info {
        _ if have == need => Ok(bytes),
        Some(info) if have == 0 => Err(format!("the kernel has parameters: {}", fields(info))),
        Some(info) => Err(format!("{from} has {have} bytes, the parameters have {need}: {}", fields(info))),
        None => Err("the kernel has no parameters".to_owned()),
    }
}

/// The type of a field's numbers.
fn scalar(field: &ParamField) -> Result<DType, String> {
    // The type of a vector's, a matrix's or an array's elements is in the innermost brackets.
    let inner = field.ty.rsplit('<').next().unwrap_or_default();
    dtype(inner.split([',', '>']).next().unwrap_or_default())
}

fn named(items: &[&str], info: &ParamsInfo) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; info.bytes];
    let mut missing: Vec<&str> = info.fields.iter().map(|field| field.name.as_str()).collect();
    for item in items {
        let (name, values) = item.split_once('=').ok_or_else(|| format!("{item:?} is no NAME=VALUE"))?;
        let field = info.fields.iter().find(|field| field.name == name);
        let field = field.ok_or_else(|| format!("there is no parameter {name:?}, but {}", fields(info)))?;
        let dtype = scalar(field)
            .map_err(|_| format!("{name} is {}, which --params can't give by name", field.ty))?;
        if !missing.contains(&name) {
            return Err(format!("{name} is given twice"));
        }
        let mut numbers = Vec::new();
        for value in values.split(';') {
            let number = checked(value, dtype).map_err(|error| format!("{name}: {error}"))?;
            push(&mut numbers, dtype, number);
        }
        if numbers.len() != field.bytes {
            let [given, need] = [numbers.len(), field.bytes].map(|bytes| bytes / dtype.size());
            let ty = &field.ty;
            return Err(format!(
                "{name} is {ty}, which takes {need} numbers, gaps included: {given} are given"
            ));
        }
        let place = bytes.get_mut(field.offset..field.offset + field.bytes);
        place.ok_or("a field outside of its structure")?.copy_from_slice(&numbers);
        missing.retain(|&other| other != name);
    }
    if missing.is_empty() { Ok(bytes) } else { Err(format!("no value for {}", missing.join(", "))) }
}

fn fields(info: &ParamsInfo) -> String {
    info.fields.iter().map(|field| format!("{}: {}", field.name, field.ty)).collect::<Vec<_>>().join(", ")
}

/// A number that its type can hold, where that has a fraction rounded.
pub(crate) fn checked(text: &str, dtype: DType) -> Result<f64, String> {
    let number: f64 = text.trim().parse().map_err(|_| format!("{text:?} is no number"))?;
    let range = match dtype {
        DType::I32 => f64::from(i32::MIN)..=f64::from(i32::MAX),
        DType::U32 => 0.0..=f64::from(u32::MAX),
        DType::F16 if number.is_finite() && f16::from_f64(number).is_infinite() => {
            return Err(format!("{text} is no {dtype}"));
        }
        DType::F32 if number.is_finite() && (number as f32).is_infinite() => {
            return Err(format!("{text} is no {dtype}"));
        }
        _ => return Ok(number),
    };
    if range.contains(&number) && number.fract() == 0.0 {
        Ok(number)
    } else {
        Err(format!("{text} is no {dtype}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        struct Params { n: u32, scale: vec2<f32>, shift: i32 }
        @group(0) @binding(0) var<storage, read_write> x: array<f32>;
        @group(0) @binding(1) var<uniform> params: Params;
        @compute @workgroup_size(1) fn main() { x[params.n] = params.scale.x + f32(params.shift); }";

    #[test]
    fn parameters_are_placed_by_name_or_in_order() {
        let report = backend_webgpu::validate(TEXT).unwrap();
        let bytes = |text: &str| bytes(text, report.params.as_ref());
        let by_name = bytes("scale=0.5;-2, n=7, shift=-1").unwrap();
        let words = [7, 0, 0.5_f32.to_bits(), (-2.0_f32).to_bits(), u32::MAX, 0].map(u32::to_le_bytes);
        assert_eq!(by_name, words.concat());
        assert_eq!(bytes("u32:7,u32:0,f32:0.5,f32:-2,i32:-1,u32:0"), Ok(by_name));
        for wrong in [
            "",
            "n=7",
            "n=7,scale=1,shift=0",
            "n=-1,scale=1;1,shift=0",
            "m=1",
            "7",
            "u64:7",
            "n=1.5",
            "u32:x",
            "f32:7,u32:0,f32:0.5,f32:-2,i32:-1,u32:0",
            "u32:7,u32:0,f32:0.5,f32:-2,u32:1,u32:0",
            "u32:7,u32:0,f32:0.5,f32:-2",
            "n=7,n=8,scale=1;1,shift=0",
        ] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(super::bytes("", None), Ok(vec![]));
        assert!(super::bytes("n=1", None).is_err());
        assert!(super::bytes("u32:1", None).is_err());
        assert_eq!(bytes("f32:7").unwrap_err(), "byte 0 is n: u32, --params gives f32:7");
        assert_eq!(bytes("n=7,n=8").unwrap_err(), "n is given twice");
        assert_eq!(bytes("n=-4").unwrap_err(), "n: -4 is no u32");
        assert_eq!(
            bytes("scale=1").unwrap_err(),
            "scale is vec2<f32>, which takes 2 numbers, gaps included: 1 are given"
        );
    }

    /// As they lie in memory: a column of three has a gap behind it.
    #[test]
    fn matrices_and_arrays_are_given_with_their_gaps() {
        let report = backend_webgpu::validate(
            "struct Params { m: mat3x3<f32>, a: array<vec4<u32>, 2> }
            @group(0) @binding(0) var<storage, read_write> x: array<f32>;
            @group(0) @binding(1) var<uniform> params: Params;
            @compute @workgroup_size(1) fn main() { x[0] = params.m[2].z + f32(params.a[1].w); }",
        )
        .unwrap();
        let bytes = |text: &str| bytes(text, report.params.as_ref());
        let found = bytes("m=1;2;3;0;4;5;6;0;7;8;9;0,a=1;2;3;4;5;6;7;8").unwrap();
        let floats = [1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0].map(|x| (x as f32).to_bits());
        let words: Vec<u8> = floats.into_iter().chain(1..=8).flat_map(u32::to_le_bytes).collect();
        assert_eq!(found, words);
        assert_eq!(
            bytes("m=1;2;3;4;5;6;7;8;9").unwrap_err(),
            "m is mat3x3<f32>, which takes 12 numbers, gaps included: 9 are given"
        );
    }
}
