// A convolution's filters as another kernel multiplies by them: for each group and each channel of the result
// a row of weights, `channels` of which follow each other for each place of the filter, or `places` for each
// channel. Where the result is that of a transposition, the filters' own channels are exchanged. Rows are
// filled up with 0.
//
// needs: T, lib/invocation_outputs

fn make_output(i: u32) {
  // The weight's row, counted over all groups, its channel, which may not exist, and its place in the
  // filter.
  let taps = params.channels_out * params.places;
  let row = i / taps;
  let tap = i % taps;
  let channel = select(tap / params.places, tap % params.channels_out, params.interleave == 1u);
  let place = select(tap % params.places, tap / params.channels_out, params.interleave == 1u);
  var v = T(0.0);
  if channel < params.channels {
    // As the filters are stored: the first of both dimensions over all groups, the second of a group.
    var first = row;
    var second = channel;
    var seconds = params.channels;
    if params.transposed == 1u {
      first = row / params.filters * params.channels + channel;
      second = row % params.filters;
      seconds = params.filters;
    }
    let at = select(
      (first * seconds + second) * params.places + place,
      (first * params.places + place) * seconds + second,
      params.interleaved == 1u,
    );
    v = filter_values[params.filter_offset + at];
  }
  repacked[params.output_offset + i] = v;
}
