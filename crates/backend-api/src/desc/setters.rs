//! The macro for a descriptor's `with_…` methods.

/// Declares `with_…` methods, each of which sets the field that its argument is named after. `Some(field)` sets a
/// field that is optional.
///
/// ```ignore
/// setters! {
///     /// Multiplies the scores by another factor.
///     pub fn with_scale(scale: f64);
///
///     /// Writes the log-sum-exp of the scores too.
///     pub fn with_lse(Some(lse): u64);
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
    (@method [$($attributes:tt)*] $with:ident $field:ident: $type:ty) => {
        $($attributes)*
        #[must_use]
        pub const fn $with(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    };
}
