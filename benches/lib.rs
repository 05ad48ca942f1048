//! What every bench shares.
