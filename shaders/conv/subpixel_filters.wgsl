// The filters of a transposed convolution whose results lie `phases` apart from what is made of the same
// elements: of each filter those taps that meet a certain phase, as a filter of its own, filled up with 0. Or
// numbers, one for each of these filters.
//
// needs: T, lib/invocation_outputs

fn weight(i: u32) -> T {
  let phases = params.phases_y * params.phases_x;
  if params.repeat == 1u {
    return filter_values[params.filter_offset + i / phases];
  }
  let places = params.height_out * params.width_out;
  let taps = params.channels * places;
  let tap = i % taps;
  let row = i / taps;
  let channel = select(tap / places, tap % params.channels, params.interleaved == 1u);
  let place = select(tap % places, tap / params.channels, params.interleaved == 1u);
  let phase = row % phases;
  let r = phase / params.phases_x + place / params.width_out * params.phases_y;
  let s = phase % params.phases_x + place % params.width_out * params.phases_x;
  if r >= params.height || s >= params.width {
    return T(0.0);
  }
  // Stored with the channels of what is read outermost.
  let f = row / phases % params.filters;
  let first = row / phases / params.filters * params.channels + channel;
  let window = params.height * params.width;
  let inner = r * params.width + s;
  let at = select(
    (first * params.filters + f) * window + inner,
    (first * window + inner) * params.filters + f,
    params.interleaved == 1u,
  );
  return filter_values[params.filter_offset + at];
}

fn make_output(i: u32) {
  repacked[i] = weight(i);
}
