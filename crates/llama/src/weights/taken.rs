//! Tensors that nothing computes with.

use std::collections::BTreeSet;

use crate::config::FACTORS;
use crate::gguf::TensorType;
use crate::{Config, Error, Result};

/// Refuses a file with a tensor that isn't among the `taken` ones: without it, its model would be another one than the
/// file's. Constants of rotations are read with the metadata, or written for old readers, and texts don't need what looks
/// at images.
pub(crate) fn refuse_others<'a>(
    config: &Config,
    taken: &BTreeSet<String>,
    tensors: impl IntoIterator<Item = (&'a str, TensorType, &'a [usize])>,
) -> Result<()> {
    let is_constant = |name: &str| FACTORS.contains(&name) || name.contains(".attn_rot_embd");
    let is_of_images = |name: &str| name.starts_with("v.") || name.starts_with("mm.");
    let is_other = |name: &str| !taken.contains(name) && !is_constant(name) && !is_of_images(name);
    let other = tensors.into_iter().find(|&(name, ..)| is_other(name));
    let Some((name, kind, shape)) = other else { return Ok(()) };
    let expected = format!("not to be in {} of {} layers", config.architecture.name(), config.layers);
    Err(Error::Tensor { name: name.to_owned(), expected, got: format!("{kind} {shape:?}") })
}
