// The outputs of rows whose keys are in one piece, which nothing has to put together.
//
// needs: T, lib/attention, lib/attention_pieces, lib/attention_seen, lib/attention_sinks, and one of lib/rows_*

@group(0) @binding(6) var<storage, read_write> lse: array<f32>;
@group(0) @binding(7) var<storage, read_write> o: array<T>;

// Writes an element of the rows' outputs from the sums of weighted values and of weights, and what these are
// relative to.
fn write_number(tile: Tile, group: vec3<u32>, groups: vec3<u32>, number: u32, sums: Rows, references: Rows, totals: Rows) {
  var place = place_of(tile, tile.row);
  for (var r = 0u; r < ROWS; r++) {
    if tile.row + r < rows() && number < v_head_dim() {
      let sink = sink_of(place.x);
      let below = denominator(row_of(references, r), row_of(totals, r), sink);
      var result = vec4<f32>(row_of(sums, r) * below.factor);
      if !is_finite(result) && is_defined(below.total) {
        // The four that the element is one of.
        let d = number / 4u * 4u;
        result = vec4<f32>(mean_of_seen(tile.batch, tile.real, place.x, place.y, d, sink, result)[number - d]);
      }
      o[params.o.x + tile.batch * params.o.y + place.x * params.o.z + place.y * params.o.w + number] = T(result.x);
    }
    place = next_place(tile, place);
  }
}

// Writes the logarithms of the rows' sums of exponentials.
fn write_states(tile: Tile, group: vec3<u32>, groups: vec3<u32>, references: Rows, totals: Rows) {
  if !has(HAS_LSE) {
    return;
  }
  var place = place_of(tile, tile.row);
  for (var r = 0u; r < ROWS; r++) {
    if tile.row + r < rows() {
      let row = (tile.batch * params.heads + place.x) * params.seq_q + place.y;
      lse[params.lse_offset + row] = denominator(row_of(references, r), row_of(totals, r), sink_of(place.x)).log_sum;
    }
    place = next_place(tile, place);
  }
}

// Nothing is left to do: there is one piece.
fn finish(tile: Tile, index: u32, group: vec3<u32>, groups: vec3<u32>) {}
