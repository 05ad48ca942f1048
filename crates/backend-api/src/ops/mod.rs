//! The functions of which one method has many: of elements, reductions, scatters, activations, gates.

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

mod elementwise;

pub use elementwise::{BinaryOp, CompareOp, UnaryOp};

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
    /// What a scatter does with a number that arrives where one is.
    ScatterOp {
        /// Takes its place; of several that arrive, the last one stays.
        Assign = "assign",
        /// Is added.
        Add = "add",
        /// Is multiplied with.
        Mul = "mul",
        /// The larger of the two stays.
        Max = "max",
        /// The smaller of the two stays.
        Min = "min",
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
    /// With what arithmetic matrix products may be made.
    MathMode {
        /// Products of the numbers themselves, summed in f32.
        Standard = "standard",
        /// Of f32 products: where the device has tensor cores for f16 and a product is large, each operand may be split
        /// into two f16 parts, of which the three largest products are added in f32. Each row of A and column of B is
        /// scaled by a power of two first, so every exponent is served. The error of a result is at most
        /// (2⁻²⁰ + k · 2⁻²³) times the sum of its products' magnitudes, and k · 2⁻³⁸ of the largest magnitude of A's
        /// row times that of B's column. An infinity or a NaN makes its whole row or column of C NaN. Elsewhere as
        /// [`Standard`](Self::Standard).
        EmulatedF32 = "emulated_f32",
        /// Of products with quantised weights: the activations of A may be rounded to 8 bits, as
        /// [`QuantMatmulDesc`](crate::desc::QuantMatmulDesc) says. Elsewhere as [`Standard`](Self::Standard).
        Int8 = "int8",
    }
}

op_enum! {
    /// A gated linear unit: a function of both halves of a product, the first being the gate.
    Gate {
        /// silu(gate) · x.
        Swiglu = "swiglu",
        /// gelu(gate) · x, with the exact GELU.
        Geglu = "geglu",
        /// gelu_tanh(gate) · x.
        GegluTanh = "geglu_tanh",
        /// g · sigmoid(1.702 · g) · (c + 1) with g = min(gate, 7) and c = x within ±7: gpt-oss's.
        SwigluOai = "swiglu_oai",
    }
}

impl Gate {
    /// The function of both halves.
    #[must_use]
    pub const fn binary(self) -> BinaryOp {
        match self {
            Self::Swiglu => BinaryOp::Swiglu,
            Self::Geglu => BinaryOp::Geglu,
            Self::GegluTanh => BinaryOp::GegluTanh,
            Self::SwigluOai => BinaryOp::SwigluOai,
        }
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
