//! What a device asks of the text of any kernel.

/// What the text has to be for one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether parameters are immediates rather than a uniform buffer.
    pub immediates: bool,
    /// Whether long loops are unrolled. CPUs that pose as a GPU gain nothing from it, and take minutes to
    /// compile the text.
    pub unroll: bool,
}
