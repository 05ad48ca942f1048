//! The operations that one method covers many of.

use crate::DType;

macro_rules! op_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every operation of this kind.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The lower-case name; also the name of its WGSL function.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

op_enum! {
    /// Whether an operand of a matrix product is read transposed.
    BackendTranspose {
        /// As stored.
        NoTrans = "n",
        /// Transposed.
        Trans = "t",
        /// Conjugate transposed; for real numbers the same as [`Trans`](Self::Trans).
        ConjTrans = "c",
    }
}

impl BackendTranspose {
    /// Whether rows and columns are exchanged.
    #[must_use]
    pub const fn is_transposed(self) -> bool {
        !matches!(self, Self::NoTrans)
    }
}

op_enum! {
    /// A reduction over axes. NaN anywhere gives NaN, except where it says otherwise. Over an empty axis each
    /// gives its identity.
    ReduceOp {
        /// The sum; 0 over an empty axis. Of integers modulo 2³².
        Sum = "sum",
        /// The arithmetic mean; NaN over an empty axis.
        Mean = "mean",
        /// The largest value; −∞, or an integer type's least, over an empty axis.
        Max = "max",
        /// The smallest value; +∞, or an integer type's largest, over an empty axis.
        Min = "min",
        /// The product; 1 over an empty axis. Of integers modulo 2³².
        Prod = "prod",
        /// Σ|x|; 0 over an empty axis.
        NormL1 = "norm_l1",
        /// √Σx²; 0 over an empty axis. The squares are f32: numbers from 2⁶⁴ on overflow.
        NormL2 = "norm_l2",
        /// ln Σeˣ, computed as m + ln Σe^(x − m) with m = max x, so that it doesn't overflow; −∞ over an
        /// empty axis and of nothing but −∞, +∞ if one of the numbers is.
        LogSumExp = "log_sum_exp",
        /// 1 if any number isn't 0, else 0; 0 over an empty axis. NaN isn't 0.
        Any = "any",
        /// 1 if no number is 0, else 0; 1 over an empty axis. NaN isn't 0.
        All = "all",
        /// The index of the largest value as an i32, the first of several; of the first NaN if there is one;
        /// −1 over an empty axis. Over several axes it counts in row-major order of these.
        ArgMax = "arg_max",
        /// The index of the smallest value, otherwise as [`ArgMax`](Self::ArgMax).
        ArgMin = "arg_min",
    }
}

impl ReduceOp {
    /// Whether the result is an index rather than a number of the input's kind.
    #[must_use]
    pub const fn is_index(self) -> bool {
        matches!(self, Self::ArgMax | Self::ArgMin)
    }

    /// Whether it is defined for floating-point numbers only.
    #[must_use]
    pub const fn is_float_only(self) -> bool {
        matches!(self, Self::Mean | Self::NormL1 | Self::NormL2 | Self::LogSumExp)
    }
}

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
    }
}

op_enum! {
    /// A function of two numbers, applied element by element. NaN on either side gives NaN, except where
    /// [`Pow`](Self::Pow) says otherwise.
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

op_enum! {
    /// What a scatter does with a number that arrives where one is.
    ScatterOp {
        /// Takes its place; of several that arrive, the last one stays.
        Assign = "assign",
        /// Is added.
        Add = "add",
        /// The larger of the two stays.
        Max = "max",
        /// The smaller of the two stays.
        Min = "min",
    }
}

impl UnaryOp {
    /// Whether the function is defined for numbers of `dtype`: all are for floating-point numbers, those with
    /// an integer result for i32. Integers wrap around.
    #[must_use]
    pub const fn accepts(self, dtype: DType) -> bool {
        match dtype {
            DType::F32 | DType::F16 => true,
            DType::I32 => matches!(self, Self::Relu | Self::Abs | Self::Neg | Self::Square | Self::Sign),
            DType::U32 => false,
        }
    }
}

impl BinaryOp {
    /// Whether the function is defined for numbers of `dtype`: all are for floating-point numbers, the
    /// arithmetic ones and the extremes for integers. Integers wrap around, a quotient loses its fraction,
    /// and a quotient by zero is 0.
    #[must_use]
    pub const fn accepts(self, dtype: DType) -> bool {
        match dtype {
            DType::F32 | DType::F16 => true,
            DType::I32 | DType::U32 => {
                matches!(self, Self::Add | Self::Sub | Self::Mul | Self::Div | Self::Max | Self::Min)
            }
        }
    }
}

op_enum! {
    /// What a fused epilogue applies to each result.
    Activation {
        /// The result itself.
        Identity = "identity",
        /// [`UnaryOp::Relu`].
        Relu = "relu",
        /// [`UnaryOp::Gelu`].
        Gelu = "gelu",
        /// [`UnaryOp::GeluTanh`].
        GeluTanh = "gelu_tanh",
        /// [`UnaryOp::Silu`].
        Silu = "silu",
    }
}

op_enum! {
    /// With what arithmetic f32 matrix products may be made.
    MathMode {
        /// f32 products and sums.
        Standard = "standard",
        /// Where the device has tensor cores for f16, each factor may be split into two f16 parts, of which
        /// the three largest products are added in f32. Each row of A and column of B is scaled by a power of
        /// two first, so every exponent is served. The error of a result is at most (2⁻²⁰ + k · 2⁻²³) times
        /// the sum of its products' magnitudes, and k · 2⁻³⁸ of the largest magnitude of A's row times that
        /// of B's column. An infinity or a NaN makes its whole row or column of C NaN. Elsewhere as
        /// [`Standard`](Self::Standard).
        EmulatedF32 = "emulated_f32",
    }
}

impl Activation {
    /// The element-wise operation of this function; `None` for the identity.
    #[must_use]
    pub const fn unary(self) -> Option<UnaryOp> {
        match self {
            Self::Identity => None,
            Self::Relu => Some(UnaryOp::Relu),
            Self::Gelu => Some(UnaryOp::Gelu),
            Self::GeluTanh => Some(UnaryOp::GeluTanh),
            Self::Silu => Some(UnaryOp::Silu),
        }
    }
}
