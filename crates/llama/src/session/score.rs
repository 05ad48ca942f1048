//! How probable a model finds a text.

use std::sync::Arc;

use backend_api::DType;
use backend_api::desc::{GatherDesc, IndexShape, Matrix};
use backend_api::owned::Buffer;

use super::chooser::{check_finite, log_sums};
use super::{Input, Session};
use crate::Result;
use crate::cache::{Placement, Run};

/// Logits that are on the device at a time.
const MAX_LOGITS: usize = 1 << 24;

impl Session {
    /// Adds tokens to a sequence and returns the natural logarithm of the probability of each but the first,
    /// given those before it.
    ///
    /// # Errors
    /// As [`step`](Session::step), and [`Error::NotFinite`](crate::Error::NotFinite), after which the sequence is as before.
    pub fn log_probabilities(&mut self, sequence: usize, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check(&[Input { sequence, tokens }])?;
        let vocabulary = self.model.config().vocabulary;
        let backend = Arc::clone(self.model.backend());
        let rows = (MAX_LOGITS / vocabulary).clamp(1, super::MAX_ROWS);
        let mut result = Vec::new();
        let before = self.len(sequence);
        for (i, chunk) in tokens.chunks(rows).enumerate() {
            let position = before + i * rows;
            let runs = [Run { first: 0, rows: chunk.len(), slot: sequence, position }];
            let activations = self.upload(chunk, &runs)?;
            let pass = self.pass(&activations, Placement::Runs(&runs));
            self.model.forward(&pass)?;

            let logits = Buffer::of(&backend, DType::F32, &[chunk.len(), vocabulary])?;
            let places = Matrix::new(logits.ptr(), DType::F32, vocabulary);
            self.model.logits(&pass, chunk.len(), &activations.x, places)?;
            self.model.cap(backend.as_ref(), chunk.len(), places)?;

            // The last token of all has none that follows; any will do for its row.
            let following = &tokens[i * rows + 1..];
            let targets: Vec<u32> =
                (0..chunk.len()).map(|row| following.get(row).copied().unwrap_or(0)).collect();
            let targets = Buffer::from_slice(&backend, &targets)?;
            let chosen = Buffer::of(&backend, DType::F32, &[chunk.len()])?;
            let shape = IndexShape { rows: vocabulary, columns: 1, count: 1 };
            let gather = GatherDesc::new(DType::F32, logits.ptr(), targets.ptr(), chosen.ptr(), shape);
            backend.gather(&gather.with_outer(chunk.len()).with_per_element())?;
            let sums = log_sums(&backend, &logits, [chunk.len(), vocabulary])?;
            let (chosen, sums) = (chosen.to_vec::<f32>()?, sums.to_vec::<f32>()?);
            result.extend(chosen.iter().zip(&sums).map(|(logit, sum)| logit - sum));
            self.activations = Some(activations);
        }
        result.truncate(tokens.len() - 1);
        check_finite(&result)?;
        self.advance(sequence, tokens.len());
        Ok(result)
    }
}
