// The parts that pieces of the keys make of the rows, as lib/attention_parts has them, written four numbers at a time.
//
// needs: lib/attention, lib/attention_pieces, lib/attention_sinks

@group(0) @binding(6) var<storage, read_write> parts: array<vec4<f32>>;

// Writes four neighbouring elements of a row of the tile.
fn put_four(tile: Tile, group: vec3<u32>, groups: vec3<u32>, row: u32, four: u32, sum: vec4<f32>) {
  parts[part_of(tile, place_of(tile, tile.row + row), group.x, groups.x) / 4u + 1u + four] = sum;
}

// Writes what a row's vector is relative to, its sum of weights, and the sink of its head.
fn put_state(tile: Tile, group: vec3<u32>, groups: vec3<u32>, row: u32, reference: f32, total: f32) {
  let place = place_of(tile, tile.row + row);
  parts[part_of(tile, place, group.x, groups.x) / 4u] = vec4<f32>(reference, total, sink_of(place.x), 0.0);
}

// Nothing is left to do: attention/combine reads the parts.
fn finish(tile: Tile, index: u32, group: vec3<u32>, groups: vec3<u32>) {}
