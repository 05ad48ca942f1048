//! The operands of a call as a file.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use backend_api::Disagreement;
use backend_api::support::{Access, Operand};
use conformance::reference::Bytes;
use safetensors::{Dtype, serialize_to_file, tensor::TensorView};

/// The environment variable that names a directory for the operands of calls about which two backends disagree. It is
/// made where there is none.
///
/// Each becomes a file in the format safetensors: the tensors `before.ARG`, and of outputs `first.ARG` and
/// `second.ARG`, as bytes from the handle's start on; in the metadata the call, the devices and what differs.
pub const DIRECTORY_VARIABLE: &str = "COMPUTE_VERIFY_DIR";

/// Memory before the call, and after it on each of the two.
pub(crate) struct Memory<'a> {
    pub(crate) before: &'a Bytes,
    pub(crate) after: [&'a Bytes; 2],
}

/// Writes the operands of a call, if that is asked for, and notes where. What prevents it is noted too.
pub(crate) fn write(op: &str, operands: &[Operand], memory: &Memory<'_>, found: &mut Disagreement) {
    let Some(directory) = std::env::var_os(DIRECTORY_VARIABLE).filter(|name| !name.is_empty()) else {
        return;
    };
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = PathBuf::from(directory);
    let path = directory.join(format!("{}-{number:04}-{op}.safetensors", std::process::id()));
    let made = std::fs::create_dir_all(&directory).map_err(safetensors::SafeTensorError::IoError);
    match made.and_then(|()| try_write(op, operands, memory, found, &path)) {
        Ok(()) => found.file = Some(path),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "the operands could not be written");
            found
                .call
                .push_str(&format!(" (its operands could not be written to {}: {error})", path.display()));
        }
    }
}

fn try_write(
    op: &str,
    operands: &[Operand],
    memory: &Memory<'_>,
    found: &Disagreement,
    path: &std::path::Path,
) -> Result<(), safetensors::SafeTensorError> {
    let mut tensors = Vec::new();
    for (i, operand) in operands.iter().enumerate().filter(|(_, operand)| operand.bytes > 0) {
        // An operation may have several inputs of one name.
        let is_repeated = operands[..i].iter().any(|other| other.arg == operand.arg);
        let arg = if is_repeated { format!("{}.{i}", operand.arg) } else { operand.arg.to_owned() };
        let mut add = |when: &str, memory: &Bytes| -> Result<(), safetensors::SafeTensorError> {
            let bytes = memory.get(operand.ptr).to_vec();
            tensors.push((format!("{when}.{arg}"), bytes));
            Ok(())
        };
        add("before", memory.before)?;
        if operand.access == Access::Write {
            add("first", memory.after[0])?;
            add("second", memory.after[1])?;
        }
    }
    let views = tensors
        .iter()
        .map(|(name, bytes)| Ok((name.as_str(), TensorView::new(Dtype::U8, vec![bytes.len()], bytes)?)));
    let views = views.collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
    let metadata = HashMap::from([
        ("op".to_owned(), op.to_owned()),
        ("call".to_owned(), found.call.clone()),
        ("first".to_owned(), found.devices[0].clone()),
        ("second".to_owned(), found.devices[1].clone()),
        ("about".to_owned(), found.to_string()),
    ]);
    serialize_to_file(views, Some(metadata), path)
}
