// The zero point 32 of all quants.

const ZERO: f32 = 32.0;
