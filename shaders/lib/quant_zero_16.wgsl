// The zero point 16 of all quants.

const ZERO: f32 = 16.0;
