// What a reduction takes of each number, chosen by number.

const NUMBER = 0u;
const ABSOLUTE = 1u;
const SQUARE = 2u;
const IS_SET = 3u;
