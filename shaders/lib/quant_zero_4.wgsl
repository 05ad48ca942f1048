// The zero point 4 of all quants.

const ZERO: f32 = 4.0;
