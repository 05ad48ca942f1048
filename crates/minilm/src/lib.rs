//! Sentence embeddings with all-MiniLM-L6-v2 over any ComputeBackend.
