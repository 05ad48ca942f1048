//! Sequences of different lengths, run together.

/// Token sequences padded to the longest of them.
#[derive(Clone, Debug)]
pub struct Batch {
    size: usize,
    seq: usize,
    ids: Vec<u32>,
    lengths: Vec<u32>,
}

impl Batch {
    /// Pads `sequences` of token ids with 0. Padding is never attended to nor averaged in, so its id doesn't
    /// matter.
    #[must_use]
    pub fn new<S: AsRef<[u32]>>(sequences: &[S]) -> Self {
        let longest = sequences.iter().map(|sequence| sequence.as_ref().len()).max();
        let seq = longest.unwrap_or(0);
        let mut ids = Vec::with_capacity(sequences.len() * seq);
        for sequence in sequences.iter().map(AsRef::as_ref) {
            ids.extend_from_slice(sequence);
            ids.extend(std::iter::repeat_n(0, seq - sequence.len()));
        }
        Self {
            size: sequences.len(),
            seq,
            ids,
            lengths: sequences.iter().map(|sequence| sequence.as_ref().len() as u32).collect(),
        }
    }

    /// Number of sequences.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Tokens in each sequence, padding included.
    #[must_use]
    pub const fn seq(&self) -> usize {
        self.seq
    }

    /// The token ids, `[size, seq]`.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Tokens in each sequence, without padding.
    #[must_use]
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// `[size, seq]`: for each sequence the row that averages its tokens, 1/length for a token and 0 for
    /// padding.
    #[must_use]
    pub fn mean_weights(&self) -> Vec<f32> {
        let row = |&length: &u32| {
            (0..self.seq).map(move |i| if i < length as usize { 1.0 / length as f32 } else { 0.0 })
        };
        self.lengths.iter().flat_map(row).collect()
    }
}

/// Groups sequences by length, longest first: which of them make up each batch, by index.
///
/// A batch holds at most `max_size` sequences. It ends early where a sequence would be more padding than
/// tokens, so one long text doesn't make many short ones expensive; this adds at most a batch for each
/// halving of the length.
#[must_use]
pub fn plan_batches(lengths: &[usize], max_size: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(lengths[i]));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for i in order {
        match batches.last_mut() {
            Some(batch) if batch.len() < max_size && 2 * lengths[i] >= lengths[batch[0]] => batch.push(i),
            _ => batches.push(vec![i]),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_sequences_are_padded() {
        let batch = Batch::new(&[&[5, 6, 7][..], &[8]]);
        assert_eq!((batch.size(), batch.seq()), (2, 3));
        assert_eq!(batch.ids(), [5, 6, 7, 8, 0, 0]);
        assert_eq!(batch.lengths(), [3, 1]);
    }

    #[test]
    fn padding_has_no_weight() {
        let batch = Batch::new(&[&[5, 6, 7, 8][..], &[8, 9], &[]]);
        let weights = [0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(batch.mean_weights(), weights);
    }

    #[test]
    fn an_empty_batch_is_empty() {
        let batch = Batch::new::<Vec<u32>>(&[]);
        assert_eq!((batch.size(), batch.seq(), batch.ids().len()), (0, 0, 0));
        assert!(plan_batches(&[], 32).is_empty());
    }

    #[test]
    fn every_sequence_is_in_one_batch() {
        let lengths: Vec<usize> = (0..100).map(|i| (i * 37) % 90 + 2).collect();
        let batches = plan_batches(&lengths, 8);
        let mut all: Vec<usize> = batches.iter().flatten().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn batches_are_bounded_in_size_and_in_padding() {
        let lengths: Vec<usize> = (0..100).map(|i| (i * 37) % 90 + 2).collect();
        for batch in plan_batches(&lengths, 8) {
            assert!(batch.len() <= 8);
            let longest = lengths[batch[0]];
            assert!(batch.iter().all(|&i| lengths[i] <= longest && 2 * lengths[i] >= longest));
        }
    }

    #[test]
    fn equal_lengths_fill_batches_in_order() {
        assert_eq!(plan_batches(&[4, 4, 4], 2), [vec![0, 1], vec![2]]);
        assert_eq!(plan_batches(&[2, 9, 3], 32), [vec![1], vec![2, 0]]);
    }
}
