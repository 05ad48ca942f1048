// A convolution's filters as another kernel multiplies by them: for each group and each channel of the result a row of
// factors, `channels` of which follow each other for each place of the filter, or `places` for each channel; or else as
// fragments of 16 rows and 16 channels, each in one piece. Where the result is that of a transposition, the filters' own
// channels are exchanged. Rows and fragments are filled up with 0.
//
// needs: T

struct Params {
  total: u32,
  // Of a group: channels of the result and of what is read, the latter also as in the rows that are written.
  filters: u32,
  channels: u32,
  channels_out: u32,
  // R · S.
  places: u32,
  // Whether channels follow each other in the filters, and in what is written.
  interleaved: u32,
  interleave: u32,
  transposed: u32,
  // Fragments side by side in a group, or 0 for rows.
  blocks: u32,
  filter_offset: u32,
  output_offset: u32,
}

@group(0) @binding(0) var<storage, read> filter_values: array<T>;
@group(0) @binding(1) var<storage, read_write> factors: array<T>;

// A factor's row, counted over all groups, its channel and its place in the filter. Channels that don't exist are 0.
struct Tap {
  row: u32,
  channel: u32,
  place: u32,
}

fn tap_of_row(i: u32) -> Tap {
  let taps = params.channels_out * params.places;
  let tap = i % taps;
  let channel = select(tap / params.places, tap % params.channels_out, params.interleave == 1u);
  let place = select(tap % params.places, tap / params.channels_out, params.interleave == 1u);
  return Tap(i / taps, channel, place);
}

fn tap_of_fragment(i: u32) -> Tap {
  let chunks = params.channels_out / 16u;
  let fragment = i / 256u;
  let filter_index = fragment % params.blocks * 16u + i / 16u % 16u;
  let place = fragment / params.blocks % params.places;
  let chunk = fragment / params.blocks / params.places;
  let channel = chunk % chunks * 16u + i % 16u;
  let exists = filter_index < params.filters;
  return Tap(chunk / chunks * params.filters + filter_index, select(params.channels, channel, exists), place);
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let i = flat_group(group, groups) * 256u + lane;
  if i >= params.total {
    return;
  }
  var tap = tap_of_row(i);
  if params.blocks > 0u {
    tap = tap_of_fragment(i);
  }
  let row = tap.row;
  let channel = tap.channel;
  let place = tap.place;
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
  factors[params.output_offset + i] = v;
}
