//! The constants that a kernel leaves free: their names and types are declared once, in Rust.

use std::slice;

use backend_api::{Activation, Gate};

/// The most constants that a kernel leaves free.
pub const MAX_CONSTANTS: usize = 11;

/// A kernel's constants as a variant holds them, zeros after the last.
pub type Values = [u32; MAX_CONSTANTS];

/// A constant, or several that are declared together by [`constants!`].
pub(crate) trait Constant: Copy {
    /// The names of several constants, in the order of their values; none if this is a single one, which is called
    /// as the field that holds it.
    const NAMES: &'static [&'static str] = &[];

    fn write(self, to: &mut slice::IterMut<'_, u32>);

    fn read(from: &mut slice::Iter<'_, u32>) -> Self;

    /// The values as a variant holds them.
    fn values(self) -> Values {
        let mut values = [0; MAX_CONSTANTS];
        self.write(&mut values.iter_mut());
        values
    }

    /// The constants of a variant.
    fn of(values: &Values) -> Self {
        Self::read(&mut values.iter())
    }
}

/// Types of single constants, as words and back.
macro_rules! single {
    ($($type:ty: $to:expr, $from:expr);+ $(;)?) => {
        $(impl Constant for $type {
            fn write(self, to: &mut slice::IterMut<'_, u32>) {
                if let Some(word) = to.next() {
                    *word = $to(self);
                }
            }

            fn read(from: &mut slice::Iter<'_, u32>) -> Self {
                $from(from.next().copied().unwrap_or_default())
            }
        })+
    };
}

single! {
    u32: |value| value, |word| word;
    usize: |value| value as u32, |word| word as usize;
    bool: u32::from, |word| word == 1;
    Activation: code_of, |word: u32| Activation::ALL.get(word as usize).copied().unwrap_or(Activation::Identity);
    Gate: code_of_gate, |word: u32| Gate::ALL.get(word as usize).copied().unwrap_or(Gate::Swiglu);
}

/// The number by which lib/activate knows an activation.
fn code_of(activation: Activation) -> u32 {
    Activation::ALL.iter().position(|&known| known == activation).unwrap_or_default() as u32
}

/// The number by which lib/gate knows a gated linear unit.
fn code_of_gate(gate: Gate) -> u32 {
    Gate::ALL.iter().position(|&known| known == gate).unwrap_or_default() as u32
}

/// Constants whose names the kernel lists, and which the launcher gives in that order.
impl<const N: usize> Constant for [u32; N] {
    fn write(self, to: &mut slice::IterMut<'_, u32>) {
        for value in self {
            value.write(to);
        }
    }

    fn read(from: &mut slice::Iter<'_, u32>) -> Self {
        std::array::from_fn(|_| u32::read(from))
    }
}

/// Constants as a variant holds them, for tests of what is written from them.
#[cfg(test)]
pub(crate) fn filled_up<const N: usize>(constants: [u32; N]) -> Values {
    constants.values()
}

/// Names of constants, put together by the compiler.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    names: [&'static str; MAX_CONSTANTS],
    count: usize,
}

impl Names {
    pub(crate) const NONE: Self = Self { names: [""; MAX_CONSTANTS], count: 0 };

    /// Adds the names that a field has, or else its own. More than [`MAX_CONSTANTS`] don't compile.
    pub(crate) const fn with(mut self, field: &'static str, names: &[&'static str]) -> Self {
        if names.is_empty() {
            self.names[self.count] = field;
            self.count += 1;
        }
        let mut i = 0;
        while i < names.len() {
            self.names[self.count] = names[i];
            self.count += 1;
            i += 1;
        }
        self
    }

    pub(crate) const fn as_slice(&'static self) -> &'static [&'static str] {
        self.names.split_at(self.count).0
    }
}

/// Declares an enum whose variants a kernel numbers in this order.
macro_rules! numbered {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($variant:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $($variant),+ }

        impl $crate::kernels::Constant for $name {
            fn write(self, to: &mut std::slice::IterMut<'_, u32>) {
                $crate::kernels::Constant::write(self as u32, to);
            }

            fn read(from: &mut std::slice::Iter<'_, u32>) -> Self {
                let all = [$(Self::$variant),+];
                let number: usize = $crate::kernels::Constant::read(from);
                all.get(number).copied().unwrap_or(all[0])
            }
        }
    };
}
pub(crate) use numbered;

/// Declares the constants of a kernel as a struct, whose fields are called in WGSL as here, in capitals. The type of a
/// field is that of a single constant, or a struct that this macro has declared.
macro_rules! constants {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $name { $($(#[$field_meta])* $vis $field: $type),+ }

        impl $crate::kernels::Constant for $name {
            const NAMES: &'static [&'static str] = {
                const NAMES: $crate::kernels::Names = $crate::kernels::Names::NONE
                    $(.with(stringify!($field), <$type as $crate::kernels::Constant>::NAMES))+;
                NAMES.as_slice()
            };

            fn write(self, to: &mut std::slice::IterMut<'_, u32>) {
                $($crate::kernels::Constant::write(self.$field, to);)+
            }

            fn read(from: &mut std::slice::Iter<'_, u32>) -> Self {
                Self { $($field: $crate::kernels::Constant::read(from)),+ }
            }
        }
    };
}
pub(crate) use constants;

#[cfg(test)]
mod tests {
    use super::*;

    constants! { struct Tile { tile_m: usize, tile_n: usize } }
    numbered! { enum Order { Rows, Columns } }
    constants! { struct Product { tile: Tile, order: Order, trans_a: bool, activation: Activation } }

    #[test]
    fn constants_are_told_apart_by_their_names() {
        assert_eq!(Product::NAMES, ["tile_m", "tile_n", "order", "trans_a", "activation"]);
        let (tile, order) = (Tile { tile_m: 64, tile_n: 32 }, Order::Columns);
        let product = Product { tile, order, trans_a: true, activation: Activation::ALL[2] };
        assert_eq!(product.values(), [64, 32, 1, 1, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Product::of(&product.values()), product);
    }
}
