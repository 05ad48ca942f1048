// The zero point 8 of all quants.

const ZERO: f32 = 8.0;
