//! The helper files that kernels append.

use super::source::Lib;

macro_rules! libs {
    ($($(#[$doc:meta])* $name:ident = $file:literal),+ $(,)?) => {
        $($(#[$doc])*
        pub(crate) const $name: Lib =
            Lib { name: concat!("lib/", $file), text: include_str!(concat!("../../shaders/lib/", $file, ".wgsl")) };)+
    };
}

libs! {
    /// Workgroup numbers of folded grids.
    GRID = "grid",
    /// Numbers that WGSL has no literals for.
    SPECIAL = "special",
    /// The functions of one number.
    UNARY = "unary",
    /// The functions of two numbers.
    BINARY = "binary",
    /// Fused activations; needs [`UNARY`] and [`SPECIAL`].
    ACTIVATE = "activate",
    /// The core of matrix products.
    TILE_PRODUCT = "tile_product",
}
