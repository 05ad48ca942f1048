//! The macro for a descriptor's `with_…` methods.

/// Declares `with_…` methods, each of which sets the field that its argument is named after. `Some(field)` sets a
/// field that is optional, and `field = true` is a method without an argument.
///
/// ```ignore
/// setters! {
///     /// Multiplies the scores by another factor.
///     pub fn with_scale(scale: f64);
///
///     /// Writes the log-sum-exp of the scores too.
///     pub fn with_lse(Some(lse): u64);
///
///     /// Gives the logarithm.
///     pub fn with_log(log = true);
/// }
/// ```
macro_rules! setters {
    ($($(#[$attribute:meta])* pub fn $with:ident($($field:tt)+);)+) => {
        $(setters!(@method [$(#[$attribute])*] $with $($field)+);)+
    };
    (@method [$($attributes:tt)*] $with:ident Some($field:ident): $type:ty) => {
        $($attributes)*
        #[must_use]
        pub const fn $with(mut self, $field: $type) -> Self {
            self.$field = Some($field);
            self
        }
    };
    (@method [$($attributes:tt)*] $with:ident $field:ident = $value:literal) => {
        $($attributes)*
        #[must_use]
        pub const fn $with(mut self) -> Self {
            self.$field = $value;
            self
        }
    };
    (@method [$($attributes:tt)*] $with:ident $field:ident: $type:ty) => {
        $($attributes)*
        #[must_use]
        pub const fn $with(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    };
}
