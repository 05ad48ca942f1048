//! The declarations that make an element-wise kernel of a scalar function.
//!
//! Such a kernel moves vectors of VEC_WIDTH elements. For each input, here called `a`, it uses the type `AN`
//! of an element in memory, the type `AV` of an element as a value, and `load_a(i, o)`, where `i` is the
//! input's place and `o` the output's. `map` makes an element of the output, of type `YN`, from the inputs'
//! values. With VEC_WIDTH = 4, each of them is four times what `apply` has it. With VEC_WIDTH = 8, they are
//! elements of f16, two in a word: WGSL's own vectors of f16 have 8 bytes at most. An invocation makes STEPS
//! of them.

use std::fmt::Write as _;

use backend_api::{BinaryOp, CompareOp, DType, ScatterOp, UnaryOp};

use super::Variant;
use super::variant::Function;

/// Elements of an invocation, 256 apart: two vectors of two inputs are as many as drivers keep in registers, and a
/// second number takes little longer than one.
pub(crate) const STEPS: u32 = 2;

/// Where an element-wise kernel has an input from: the value of the constant `A_FROM` for the input `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Origin {
    /// Its own memory, element by element.
    Memory,
    /// The output, whose elements it shares.
    Output,
    /// One number of its own memory for all VEC_WIDTH.
    Repeated,
    /// Its own memory, where each of the VEC_WIDTH lies somewhere: `params.loops` has the columns of a row, the
    /// strides of both and the start, and its place is the number of an element.
    Gathered,
}

/// The declarations of a variant with a function.
pub(super) fn declarations(variant: &Variant, function: Function) -> String {
    let vec_width = variant.constant("vec_width").max(1) as usize;
    match function {
        Function::Combine(op) => return combine(op, variant.dtype(0), variant.dtype(1)),
        Function::Write => return write(vec_width, variant.dtype(0)),
        Function::Move => return format!("alias TN = {};\n", vector(vec_width, variant.dtype(0).name())),
        _ => {}
    }
    let names = inputs(variant);
    let mut text = format!("const STEPS = {STEPS}u;\n");
    for (index, name) in names.iter().enumerate() {
        // A choice's first input is its condition, of u32.
        let dtype = if function == Function::Choose && index == 0 { DType::U32 } else { variant.dtype(0) };
        let bit = index.checked_sub(usize::from(function == Function::Choose));
        let number = bit.filter(|_| names.len() > 1).map(|bit| 1 << bit);
        load(&mut text, variant, function, Input { index, name, dtype, number, vec_width });
    }
    let stored = variant.dtype(variant.source.types.len() - 1);
    _ = writeln!(text, "alias YN = {};", element(vec_width, stored));
    let list =
        |each: &dyn Fn(&str) -> String| names.iter().map(|name| each(name)).collect::<Vec<_>>().join(", ");
    let parameters = list(&|name| format!("{}: {name}V", name.to_lowercase()));
    let apply_to = |parts: &dyn Fn(&str) -> String| format!("apply({})", list(parts));
    let result = match (vec_width, function) {
        // A copy, whose only input has the output's type.
        (8, Function::Convert) => names[0].to_lowercase(),
        (8, _) => LANE_NAMES
            .map(|word| {
                let half = |lane: &str| {
                    apply_to(&|name| {
                        let repeated = is_repeated(variant, name);
                        let name = name.to_lowercase();
                        if repeated { name } else { format!("unpack2x16float({name}.{word}).{lane}") }
                    })
                };
                format!("pack2x16float(vec2<f32>({}, {}))", half("x"), half("y"))
            })
            .join(", "),
        _ => {
            let lane = |lane: &str| {
                let part = if vec_width == 1 { String::new() } else { format!(".{lane}") };
                format!("{stored}({})", apply_to(&|name| format!("{}{part}", name.to_lowercase())))
            };
            LANE_NAMES[..vec_width].iter().map(|name| lane(name)).collect::<Vec<_>>().join(", ")
        }
    };
    _ = writeln!(text, "fn map({parameters}) -> YN {{ return YN({result}); }}");
    _ = writeln!(text, "{}", apply(variant, function));
    text
}

const LANE_NAMES: [&str; 4] = ["x", "y", "z", "w"];

/// Writes a block of four elements, of which the first `skip` of all and what is beyond `params.n` are left
/// out.
fn write(vec_width: usize, dtype: DType) -> String {
    let narrow = |number: &str| match dtype {
        DType::F16 => format!("f16_from_f32({number})"),
        _ => number.to_owned(),
    };
    let body = if vec_width == 4 {
        let parts = ["numbers.x", "numbers.y", "numbers.z", "numbers.w"].map(narrow).join(", ");
        format!("  output[params.output / 4u + block] = TN({parts});\n")
    } else {
        let number = narrow("numbers[k]");
        format!(
            "  for (var k = 0u; k < 4u; k++) {{\n    \
             let i = block * 4u + k - skip;\n    \
             if i < params.n {{ output[params.output + i] = {number}; }}\n  }}\n"
        )
    };
    let element = vector(vec_width, dtype.name());
    format!("alias TN = {element};\nfn write(block: u32, skip: u32, numbers: vec4<f32>) {{\n{body}}}\n")
}

/// What a scatter does with a number of type `source`, in f32 for floating-point types.
fn combine(op: ScatterOp, dtype: DType, source: DType) -> String {
    // What replaces an element is moved, bit by bit: a conversion may change a NaN.
    let is_converted = dtype.is_float() && op != ScatterOp::Assign;
    let number = if is_converted { "f32" } else { dtype.name() };
    let value = match (op, dtype.is_float()) {
        (ScatterOp::Add, _) => "a + b",
        (ScatterOp::Mul, _) => "a * b",
        (ScatterOp::Max, true) => "max_nan(a, b)",
        (ScatterOp::Max, false) => "max(a, b)",
        (ScatterOp::Min, true) => "min_nan(a, b)",
        (ScatterOp::Min, false) => "min(a, b)",
        _ => "b",
    };
    let arriving = match (dtype, source) {
        (DType::F16, DType::F32) => "f16_from_f32(x)",
        _ => "V(x)",
    };
    format!(
        "alias V = {number};\nfn arriving(x: S) -> V {{ return {arriving}; }}\n\
         fn combine(a: V, b: V) -> V {{ return {value}; }}\n"
    )
}

/// The names of the inputs, from the kernel's constants.
fn inputs(variant: &Variant) -> Vec<String> {
    let names = variant.source.constants.iter().filter_map(|constant| constant.strip_suffix("_from"));
    names.map(str::to_ascii_uppercase).collect()
}

struct Input<'a> {
    /// Its place among the inputs.
    index: usize,
    name: &'a str,
    dtype: DType,
    /// The bit of `numbers()` that says whether the input is a number, where it may be one.
    number: Option<u32>,
    vec_width: usize,
}

fn is_repeated(variant: &Variant, name: &str) -> bool {
    variant.constant(&format!("{name}_from")) == Origin::Repeated as u32
}

/// The types of an input and how it is read.
fn load(text: &mut String, variant: &Variant, function: Function, input: Input<'_>) {
    let Input { index, name, dtype, number, vec_width } = input;
    let variable = name.to_lowercase();
    let origin = variant.constant(&format!("{name}_from"));
    let repeated = is_repeated(variant, name);
    let computed = computed_as(function, dtype).name();
    let value = match (vec_width, repeated) {
        (8, true) if function == Function::Convert => "u32".to_owned(),
        (8, true) => computed.to_owned(),
        (8, false) => element(vec_width, dtype),
        _ => vector(vec_width, computed),
    };
    let stored = match origin == Origin::Memory as u32 {
        true => element(vec_width, dtype),
        // Halves in words can only be read by the word.
        false if vec_width == 8 => "u32".to_owned(),
        false => dtype.to_string(),
    };
    _ = writeln!(text, "alias {name}N = {stored};\nalias {name}V = {value};");
    _ = writeln!(text, "fn load_{variable}(i: u32, o: u32) -> {name}V {{");
    if origin == Origin::Output as u32 {
        _ = writeln!(text, "  return {name}V(y[o]);\n}}");
        return;
    }
    if origin == Origin::Gathered as u32 {
        _ = writeln!(text, "{}}}", gather(&variable, name, computed, index, vec_width));
        return;
    }
    // A number of one lane is read like an element, and one of several like a repeated one.
    if let Some(bit) = number
        && (vec_width == 1 || repeated)
    {
        let bits = match computed {
            "u32" => "i".to_owned(),
            "f16" => "f16(bitcast<f32>(i))".to_owned(),
            other => format!("bitcast<{other}>(i)"),
        };
        _ = writeln!(text, "  if (numbers() & {bit}u) != 0u {{ return {name}V({bits}); }}");
    }
    let element = match (vec_width, repeated) {
        (8, true) if function == Function::Convert => {
            format!("extractBits({variable}[i / 2u], i % 2u * 16u, 16u) * 0x10001u")
        }
        (8, true) => format!("unpack2x16float({variable}[i / 2u] >> (i % 2u * 16u)).x"),
        _ if stored.starts_with("vec") => format!("{variable}[i]"),
        _ => format!("{computed}({variable}[i])"),
    };
    _ = writeln!(text, "  return {name}V({element});\n}}");
}

/// Reads `vec_width` elements of an input from element `i` of all on, each from its place.
fn gather(variable: &str, name: &str, computed: &str, index: usize, vec_width: usize) -> String {
    let component = ["y", "z", "w"][index.min(2)];
    let mut text = format!(
        "  let columns = params.loops[1].x;\n  let step = params.loops[1].{component};\n  \
         let next_row = params.loops[2].{component} - columns * step;\n  let row = i / columns;\n  \
         var column = i - row * columns;\n  \
         var at = params.loops[3].{component} + row * params.loops[2].{component} + column * step;\n"
    );
    for lane in 0..vec_width {
        let element = match vec_width {
            8 => format!("extractBits({variable}[at / 2u], at % 2u * 16u, 16u)"),
            _ => format!("{computed}({variable}[at])"),
        };
        _ = writeln!(text, "  let e{lane} = {element};");
        if lane + 1 < vec_width {
            _ = writeln!(text, "  column += 1u;\n  at += step;");
            _ = writeln!(text, "  if column == columns {{ column = 0u; at += next_row; }}");
        }
    }
    let lanes: Vec<_> = match vec_width {
        8 => (0..4).map(|word| format!("e{} | (e{} << 16u)", 2 * word, 2 * word + 1)).collect(),
        _ => (0..vec_width).map(|lane| format!("e{lane}")).collect(),
    };
    _ = writeln!(text, "  return {name}V({});", lanes.join(", "));
    text
}

/// The type of a vector of `vec_width` elements in memory.
fn element(vec_width: usize, dtype: DType) -> String {
    if vec_width == 8 { "vec4<u32>".to_owned() } else { vector(vec_width, dtype.name()) }
}

fn vector(vec_width: usize, element: &str) -> String {
    if vec_width == 1 { element.to_owned() } else { format!("vec{vec_width}<{element}>") }
}

/// What a function takes elements of a type as.
fn computed_as(function: Function, dtype: DType) -> DType {
    match (function, dtype) {
        (Function::Choose | Function::Convert, dtype) => dtype,
        (_, DType::F16) => DType::F32,
        (_, dtype) => dtype,
    }
}

/// Whether lib/half has the function.
fn has_half_form(op: UnaryOp) -> bool {
    matches!(
        op,
        UnaryOp::Exp | UnaryOp::Tanh | UnaryOp::Sigmoid | UnaryOp::Silu | UnaryOp::Gelu | UnaryOp::GeluTanh
    )
}

/// The scalar function, in terms of those of the helper files.
fn apply(variant: &Variant, function: Function) -> String {
    let dtype = variant.dtype(0);
    let number = computed_as(function, dtype);
    let is_float = number.is_float();
    match function {
        Function::Unary(op) => {
            let prefix = match dtype {
                DType::F16 if has_half_form(op) => "half",
                _ if is_float => "unary",
                _ => number.name(),
            };
            let parameters = [", bitcast<f32>(params.p)", ", bitcast<f32>(params.q)"];
            let given = parameters[..op.parameters()].concat();
            format!("fn apply(x: {number}) -> {number} {{ return {prefix}_{}(x{given}); }}", op.name())
        }
        Function::Binary(op) => {
            let value = match (is_float, op) {
                (false, BinaryOp::Add) => "a + b".to_owned(),
                (false, BinaryOp::Sub) => "a - b".to_owned(),
                (false, BinaryOp::Mul) => "a * b".to_owned(),
                (false, BinaryOp::BitAnd) => "a & b".to_owned(),
                (false, BinaryOp::BitOr) => "a | b".to_owned(),
                (false, BinaryOp::BitXor) => "a ^ b".to_owned(),
                (false, BinaryOp::Max | BinaryOp::Min) => format!("{}(a, b)", op.name()),
                (false, _) => format!("{number}_{}(a, b)", op.name()),
                (true, BinaryOp::Swiglu | BinaryOp::Geglu | BinaryOp::GegluTanh) if dtype == DType::F16 => {
                    format!("half_{}(a, b)", op.name())
                }
                (true, _) => format!("binary_{}(a, b)", op.name()),
            };
            format!("fn apply(a: {number}, b: {number}) -> {number} {{ return {value}; }}")
        }
        Function::Compare(op) => {
            let operator = match op {
                CompareOp::Eq => "==",
                CompareOp::Ne => "!=",
                CompareOp::Lt => "<",
                CompareOp::Le => "<=",
                CompareOp::Gt => ">",
                _ => ">=",
            };
            let holds = if is_float { format!("f32_{}(a, b)", op.name()) } else { format!("a {operator} b") };
            format!("fn apply(a: {number}, b: {number}) -> u32 {{ return u32({holds}); }}")
        }
        Function::Choose => {
            format!("fn apply(c: u32, a: {dtype}, b: {dtype}) -> {dtype} {{ return select(b, a, c != 0u); }}")
        }
        Function::Clamp => {
            let [min, max] = if is_float { ["min_nan", "max_nan"] } else { ["min", "max"] };
            let [low, high] = ["p", "q"].map(|bound| format!("bitcast<{number}>(params.{bound})"));
            format!("fn apply(x: {number}) -> {number} {{ return {min}({max}(x, {low}), {high}); }}")
        }
        Function::Affine => {
            "fn apply(x: f32) -> f32 { return x * bitcast<f32>(params.p) + bitcast<f32>(params.q); }"
                .to_owned()
        }
        // Steps of a move apply no function.
        Function::Combine(_) | Function::Move | Function::Write => String::new(),
        Function::Convert => {
            let to = variant.dtype(1);
            format!("fn apply(x: {dtype}) -> {to} {{ return {to}_from_{dtype}(x); }}")
        }
    }
}
