// A tile of C with the two matrices whose product it is.
//
// needs: lib/fragments

// The first row and column, where the matrix C begins, and the operands.
struct Tile {
  row: u32,
  column: u32,
  c: u32,
  a: Operand,
  b: Operand,
  // How much of k the first step takes, and how many steps there are.
  head: u32,
  steps: u32,
}
