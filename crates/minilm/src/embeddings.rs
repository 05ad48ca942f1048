//! Sentence vectors on the host.

/// One vector of length 1 for each text, in the order in which the texts were given.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeddings {
    dim: usize,
    tokens: usize,
    data: Vec<f32>,
}

impl Embeddings {
    /// Room for `count` vectors of `dim` numbers from texts of `tokens` tokens together.
    pub(crate) fn zeros(count: usize, dim: usize, tokens: usize) -> Self {
        Self { dim, tokens, data: vec![0.0; count * dim] }
    }

    /// Sets vector `index` to `vector` scaled to length 1; zeros stay zeros.
    pub(crate) fn set_normalized(&mut self, index: usize, vector: &[f32]) {
        let length = dot(vector, vector).sqrt();
        let scale = if length > 0.0 { length.recip() } else { 0.0 };
        let start = index * self.dim;
        for (to, from) in self.data[start..start + self.dim].iter_mut().zip(vector) {
            *to = from * scale;
        }
    }

    /// Numbers in a vector.
    #[must_use]
    pub const fn dim(&self) -> usize {
        self.dim
    }

    /// Tokens read, padding not counted.
    #[must_use]
    pub const fn tokens(&self) -> usize {
        self.tokens
    }

    /// The vectors.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.data.chunks_exact(self.dim.max(1))
    }

    /// The `count` vectors most similar to `query`, best first: index and cosine similarity, for a query of
    /// length 1.
    #[must_use]
    pub fn nearest(&self, query: &[f32], count: usize) -> Vec<(usize, f32)> {
        let mut scores: Vec<(usize, f32)> =
            self.iter().map(|vector| dot(vector, query)).enumerate().collect();
        scores.sort_by(|a, b| b.1.total_cmp(&a.1));
        scores.truncate(count);
        scores
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embeddings() -> Embeddings {
        let mut embeddings = Embeddings::zeros(3, 2, 9);
        embeddings.set_normalized(2, &[3.0, 4.0]);
        embeddings.set_normalized(0, &[0.0, -2.0]);
        embeddings
    }

    #[test]
    fn vectors_have_length_one_and_zeros_stay() {
        let vectors: Vec<Vec<f32>> = embeddings().iter().map(<[f32]>::to_vec).collect();
        assert_eq!(vectors, [[0.0, -1.0], [0.0, 0.0], [0.6, 0.8]]);
    }

    #[test]
    fn the_nearest_come_first() {
        let found = embeddings().nearest(&[0.0, 1.0], 2);
        assert_eq!(found.iter().map(|hit| hit.0).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(embeddings().nearest(&[0.0, 1.0], 9).len(), 3);
    }
}
