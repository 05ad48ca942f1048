//! Functions and comparisons of elements.

use crate::DType;

op_enum! {
    /// A function of one number, applied to each element. NaN gives NaN.
    UnaryOp {
        /// max(x, 0).
        Relu = "relu",
        /// 1 / (1 + e⁻ˣ).
        Sigmoid = "sigmoid",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// eˣ.
        Exp = "exp",
        /// Natural logarithm; −∞ at 0, NaN below.
        Log = "log",
        /// Square root; NaN below 0.
        Sqrt = "sqrt",
        /// Absolute value.
        Abs = "abs",
        /// −x.
        Neg = "neg",
        /// x·Φ(x) = x/2·(1 + erf(x/√2)), the exact GELU.
        Gelu = "gelu",
        /// x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))), GELU's tanh approximation.
        GeluTanh = "gelu_tanh",
        /// x·sigmoid(x), also called swish; 0 at −∞.
        Silu = "silu",
        /// 1/√x; +∞ at 0, NaN below.
        Rsqrt = "rsqrt",
        /// 1/x.
        Recip = "recip",
        /// x².
        Square = "square",
        /// Sine of an angle in radians; NaN at ±∞.
        Sin = "sin",
        /// Cosine of an angle in radians; NaN at ±∞.
        Cos = "cos",
        /// The largest integer not above x.
        Floor = "floor",
        /// The smallest integer not below x.
        Ceil = "ceil",
        /// The nearest integer, halves to even (IEEE 754 roundToIntegralTiesToEven).
        Round = "round",
        /// −1, 0 or 1; a zero keeps its sign.
        Sign = "sign",
        /// The integer next to x towards 0; a zero has the sign of x.
        Trunc = "trunc",
        /// eˣ − 1, also where it vanishes.
        Expm1 = "expm1",
        /// ln(1 + x), also where it vanishes; −∞ at −1, NaN below.
        Log1p = "log1p",
        /// The error function, 2/√π · ∫₀ˣ exp(−t²) dt.
        Erf = "erf",
        /// Tangent of an angle in radians; NaN at ±∞.
        Tan = "tan",
        /// Inverse sine, in radians; NaN outside of [−1, 1].
        Asin = "asin",
        /// Inverse cosine, in radians; NaN outside of [−1, 1].
        Acos = "acos",
        /// Inverse tangent, in radians; ±π/2 at ±∞.
        Atan = "atan",
        /// Hyperbolic sine.
        Sinh = "sinh",
        /// Hyperbolic cosine.
        Cosh = "cosh",
        /// Inverse hyperbolic sine.
        Asinh = "asinh",
        /// Inverse hyperbolic cosine; NaN below 1.
        Acosh = "acosh",
        /// Inverse hyperbolic tangent; ±∞ at ±1, NaN outside of them.
        Atanh = "atanh",
        /// ln(1 + eˣ).
        Softplus = "softplus",
        /// x / (1 + |x|); ±1 at ±∞.
        Softsign = "softsign",
        /// x · tanh(softplus(x)); 0 at −∞ (Misra, 2019).
        Mish = "mish",
        /// x where x > 0, else α·(eˣ − 1); α is 1 unless given (Clevert et al., 2015).
        Elu = "elu",
        /// β·x where x > 0, else β·α·(eˣ − 1); α is 1.67326319 and β 1.05070102 unless given (Klambauer et
        /// al., 2017).
        Selu = "selu",
        /// x where x > 0, else α·(e^(x/α) − 1); α is 1 unless given and not 0 (Barron, 2017).
        Celu = "celu",
        /// x where x > 0, else α·x; α is 0.01 unless given.
        LeakyRelu = "leaky_relu",
        /// x where x > α, else 0; α is 1 unless given.
        ThresholdedRelu = "thresholded_relu",
        /// x + β below −α, x − β above α, else 0; α is 0.5 and β 0 unless given.
        Shrink = "shrink",
        /// α·x + β, bounded to [0, 1]; α is 0.2 and β 0.5 unless given, as in ONNX (α is 1/6 in PyTorch).
        HardSigmoid = "hard_sigmoid",
        /// x times α·x + β bounded to [0, 1]; 0 at −∞; α is 1/6 and β 0.5 unless given.
        HardSwish = "hard_swish",
        /// x·sigmoid(α·x); α is 1 unless given, and 1.702 in the approximation of GELU called QuickGELU.
        Swish = "swish",
        /// Every bit inverted; of integers only.
        BitNot = "bit_not",
    }
}

op_enum! {
    /// A function of two numbers, applied element by element. NaN on either side gives NaN, except where
    /// [`Pow`](Self::Pow) and [`Prelu`](Self::Prelu) say otherwise.
    BinaryOp {
        /// a + b.
        Add = "add",
        /// a − b.
        Sub = "sub",
        /// a · b.
        Mul = "mul",
        /// a / b, by IEEE 754 also at zeros and infinities.
        Div = "div",
        /// The larger.
        Max = "max",
        /// The smaller.
        Min = "min",
        /// aᵇ as C's `pow`: 1 for b = 0 or a = 1 even with NaN, NaN for a negative base and a fractional
        /// exponent.
        Pow = "pow",
        /// silu(a) · b, the gated linear unit of Llama; a is the gate.
        Swiglu = "swiglu",
        /// gelu(a) · b, with the exact GELU.
        Geglu = "geglu",
        /// gelu_tanh(a) · b.
        GegluTanh = "geglu_tanh",
        /// g · sigmoid(1.702 · g) · (c + 1) with g = min(a, 7) and c = b within ±7: the clamped gated linear unit of
        /// gpt-oss, ggml's `SWIGLU_OAI`.
        SwigluOai = "swiglu_oai",
        /// The remainder of a / b rounded towards 0, exact; it has the sign of a, as C's `fmod` and Rust's `%`.
        /// NaN for b = 0 and for an infinite a, a for an infinite b.
        Rem = "rem",
        /// The remainder of a / b rounded towards −∞: it has the sign of b, as in Python. [`Rem`](Self::Rem),
        /// to which b is added where the signs differ.
        Mod = "mod",
        /// a where a ≥ 0, else a · b; b is the slope, of which NaN only shows where it is used.
        Prelu = "prelu",
        /// Bitwise and; of integers only. On 0 and 1 the logical one.
        BitAnd = "bit_and",
        /// Bitwise or; of integers only. On 0 and 1 the logical one.
        BitOr = "bit_or",
        /// Bitwise exclusive or; of integers only. On 0 and 1 the logical one.
        BitXor = "bit_xor",
        /// a shifted left by b bits; of integers only. Every bit is lost where b, taken as u32, is 32 or more.
        Shl = "shl",
        /// a shifted right by b bits, an i32 with its sign; of integers only. Every bit but the sign's is lost
        /// where b, taken as u32, is 32 or more.
        Shr = "shr",
    }
}

op_enum! {
    /// A comparison of two numbers, as IEEE 754 defines it: with NaN on either side only [`Ne`](Self::Ne)
    /// holds, and the two zeros are equal.
    CompareOp {
        /// a = b.
        Eq = "eq",
        /// a ≠ b.
        Ne = "ne",
        /// a < b.
        Lt = "lt",
        /// a ≤ b.
        Le = "le",
        /// a > b.
        Gt = "gt",
        /// a ≥ b.
        Ge = "ge",
    }
}

impl UnaryOp {
    /// Whether the function is defined for numbers of `dtype`: all but [`BitNot`](Self::BitNot) are for
    /// floating-point numbers, that one for integers, and those with an integer result for i32. Integers wrap
    /// around.
    #[must_use]
    pub const fn accepts(self, dtype: DType) -> bool {
        match dtype {
            DType::F32 | DType::F16 => !matches!(self, Self::BitNot),
            DType::I32 => {
                matches!(self, Self::Relu | Self::Abs | Self::Neg | Self::Square | Self::Sign | Self::BitNot)
            }
            DType::U32 => matches!(self, Self::BitNot),
        }
    }

    /// How many of the parameters α and β the function has.
    #[must_use]
    pub const fn parameters(self) -> usize {
        match self {
            Self::Elu | Self::Celu | Self::LeakyRelu | Self::ThresholdedRelu | Self::Swish => 1,
            Self::Selu | Self::Shrink | Self::HardSigmoid | Self::HardSwish => 2,
            _ => 0,
        }
    }

    /// α and β where none are given; 0 for one that the function doesn't have.
    #[must_use]
    pub const fn default_parameters(self) -> [f64; 2] {
        match self {
            Self::Elu | Self::Celu | Self::ThresholdedRelu | Self::Swish => [1.0, 0.0],
            Self::LeakyRelu => [0.01, 0.0],
            Self::Selu => [1.673_263_242_354_377_2, 1.050_700_987_355_480_5],
            Self::Shrink => [0.5, 0.0],
            Self::HardSigmoid => [0.2, 0.5],
            Self::HardSwish => [1.0 / 6.0, 0.5],
            _ => [0.0; 2],
        }
    }
}

impl BinaryOp {
    /// Whether the function is defined for numbers of `dtype`: those on bits for integers, all others for
    /// floating-point numbers, the arithmetic ones and the extremes for both. Integers wrap around, a quotient
    /// loses its fraction, and a quotient or a remainder by zero is 0.
    #[must_use]
    pub const fn accepts(self, dtype: DType) -> bool {
        let of_both = matches!(
            self,
            Self::Add | Self::Sub | Self::Mul | Self::Div | Self::Rem | Self::Mod | Self::Max | Self::Min
        );
        let of_bits = matches!(self, Self::BitAnd | Self::BitOr | Self::BitXor | Self::Shl | Self::Shr);
        if dtype.is_float() { !of_bits } else { of_both || of_bits }
    }
}

impl CompareOp {
    /// Whether it holds for two numbers.
    #[must_use]
    pub fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        match self {
            Self::Eq => a == b,
            Self::Ne => a != b,
            Self::Lt => a < b,
            Self::Le => a <= b,
            Self::Gt => a > b,
            Self::Ge => a >= b,
        }
    }
}
