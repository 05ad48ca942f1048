//! The matrices of a mixture's experts on their way to the device.

use backend_api::DType;
use backend_api::desc::QuantMatrix;
use backend_api::owned::Buffer;

use super::Loader;
use super::planes::Rows;
use crate::feed_forward::Stack;
use crate::{Error, Result};

impl<'a> Loader<'a> {
    /// The matrices of all experts, `[experts, rows, columns]`, by name without `.weight`, and the biases that the file has:
    /// of several tensors, those of an expert one after the other. Matrices have to be quantised, all in one format.
    pub(crate) fn experts(
        &mut self,
        names: &[String],
        [experts, rows, columns]: [usize; 3],
    ) -> Result<Stack> {
        let (mut parts, mut format) = (Vec::new(), None);
        let with = |suffix: &str| names.iter().map(|name| format!("{name}.{suffix}")).collect::<Vec<_>>();
        for name in with("weight") {
            let tensor = self.find(&name, &[experts, rows, columns])?;
            let found = tensor.kind.quant_format();
            let (Some(own), true) = (found, format.is_none() || format == found) else {
                let expected =
                    format.map_or("in a format of blocks".to_owned(), |format| format!("in {format}"));
                return Err(Error::Tensor { name, expected, got: tensor.kind.to_string() });
            };
            format = Some(own);
            parts.push(Rows::of(tensor));
        }
        let Some(format) = format else { return Err(Error::MissingTensor { name: String::new() }) };
        let bias = self.expert_vectors(&with("bias"), [experts, rows])?;
        let all = experts * rows * parts.len();
        // What an expert has of several tensors lies together.
        let row = move |row: usize| {
            let (stack, row) = (row / rows, row % rows);
            let of_part = |part: &Rows<'a>| part.row(stack / parts.len() * rows + row);
            parts.get(stack % parts.len()).map_or(&[][..], of_part)
        };
        let planes = self.planes(format, [all, columns], row)?;
        let matrix = QuantMatrix::new(planes.ptr(), format, all, columns);
        Ok(Stack { matrix, _planes: planes, bias })
    }

    /// A row of each of several matrices for each expert, `[experts, columns]`, as [`stacked_vectors`](Self::stacked_vectors)
    /// has vectors, in f32.
    fn expert_vectors(&mut self, names: &[String], [experts, columns]: [usize; 2]) -> Result<Option<Buffer>> {
        if !names.iter().any(|name| self.has(name)) {
            return Ok(None);
        }
        let mut numbers = vec![0.0; experts * names.len() * columns];
        for (place, name) in names.iter().enumerate() {
            if !self.has(name) {
                continue;
            }
            let part = self.numbers(name, &[experts, columns])?;
            let rows = numbers.chunks_exact_mut(columns).skip(place).step_by(names.len());
            rows.zip(part.chunks_exact(columns)).for_each(|(row, part)| row.copy_from_slice(part));
        }
        self.upload(DType::F32, &numbers).map(Some)
    }
}
