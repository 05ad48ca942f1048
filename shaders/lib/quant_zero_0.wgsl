// The zero point 0 of all quants.

const ZERO: f32 = 0.0;
