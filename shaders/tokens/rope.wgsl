// (x, y) → (x·cos − y·sin, x·sin + y·cos) for each pair of elements of each vector, by the angle of the
// token's position and the pair. Elements from rotary_dim on are copied. One invocation for each pair, and
// for each copied number.
//
// needs: T, Y (elements of input and output), IN_PLACE, INTERLEAVED, HAS_POSITIONS, lib/invocation_outputs

fn load(i: u32) -> T {
  if IN_PLACE == 1u {
    return T(output[i]);
  }
  return input[i];
}

fn make_output(i: u32) {
  let part = i % params.work;
  let token = (i / params.work) % params.seq;
  let head = (i / (params.work * params.seq)) % params.heads;
  let batch = i / (params.work * params.seq * params.heads);
  let place = vec4<u32>(1u, batch, head, token);
  let x_base = dot(params.input, place);
  let y_base = dot(params.output, place);

  if part >= params.pairs {
    let d = part + params.pairs;
    output[y_base + d] = Y(load(x_base + d));
    return;
  }
  var position = params.start + token;
  if HAS_POSITIONS == 1u {
    position = positions[params.positions_offset + batch * params.seq + token];
  }
  let angle = min(position, params.max_position - 1u) * params.pairs + part;
  let c = cosines[params.cos_offset + angle];
  let s = sines[params.sin_offset + angle];
  let first = select(part, 2u * part, INTERLEAVED == 1u);
  let second = select(part + params.pairs, 2u * part + 1u, INTERLEAVED == 1u);
  let x = f32(load(x_base + first));
  let y = f32(load(x_base + second));
  output[y_base + first] = Y(x * c - y * s);
  output[y_base + second] = Y(x * s + y * c);
}
