// C = activation(alpha · A · op(B) + beta · C + bias) for each matrix of a batch, where A is one row, and B's
// rows run along k: what takes the time is reading B once.
//
// A workgroup makes COLUMNS columns of C. THREADS_PER_OUTPUT invocations share COLUMNS_PER_THREAD of B's rows: each reads
// PREFETCH vectors of every one, its neighbours what follows, and they add their parts at the end. All read the
// same of A, which the cache keeps. The first k-block is filled up with zeros from its beginning, so that only
// what is fetched first is looked at whether it exists.
//
// The starts, the batch strides, the leading dimension of B and k are whole vectors, and A's elements are
// adjacent.
//
// With TRANS_C, the product was transposed as a whole, so that one column became one row.
//
// needs: T, TC, A, COLUMNS_PER_THREAD, PREFETCH, TRANS_C, ACTIVATION, lib/matmul, vec, lib/workgroup_tiles

const THREADS: u32 = 128u;
const THREADS_PER_OUTPUT: u32 = 32u;
const COLUMNS: u32 = THREADS / THREADS_PER_OUTPUT * COLUMNS_PER_THREAD;
const K_BLOCK: u32 = THREADS_PER_OUTPUT * PREFETCH;

var<workgroup> sh: array<f32, COLUMNS_PER_THREAD * THREADS>;

fn make_tile(flat: u32, index: u32) {
  let tile = tile_place(flat);
  let lane = index % THREADS_PER_OUTPUT;
  let row = min(tile.y * COLUMNS + index / THREADS_PER_OUTPUT * COLUMNS_PER_THREAD, params.n - 1u);
  // Beyond the last column, another one's products are made, but not written.
  let following = params.n - 1u - row;
  let ld = params.b_ld / WIDTH;
  let first_a = (params.a_offset + tile.z * params.a_batch) / WIDTH;
  let first_b = (params.b_offset + tile.z * params.b_batch) / WIDTH + row * ld;
  let end = depth(tile.z) / WIDTH;
  let k_blocks = (end + K_BLOCK - 1u) / K_BLOCK;
  let pad = k_blocks * K_BLOCK - end;

  var sums: array<f32, COLUMNS_PER_THREAD>;
  var x: array<V, PREFETCH>;
  var y: array<V, PREFETCH * COLUMNS_PER_THREAD>;
  for (var u = 0u; u < PREFETCH; u++) {
    let k = u * THREADS_PER_OUTPUT + lane;
    let at = max(k, pad) - pad;
    x[u] = select(V(), a[first_a + at], k >= pad);
    for (var j = 0u; j < COLUMNS_PER_THREAD; j++) {
      y[u * COLUMNS_PER_THREAD + j] = select(V(), b[first_b + min(j, following) * ld + at], k >= pad);
    }
  }
  for (var k_block = 1u; k_block <= k_blocks; k_block++) {
    for (var u = 0u; u < PREFETCH; u++) {
      let at = min(k_block * K_BLOCK + u * THREADS_PER_OUTPUT + lane - pad, end - 1u);
      var p = unpack(x[u]);
      x[u] = a[first_a + at];
      for (var j = 0u; j < COLUMNS_PER_THREAD; j++) {
        var q = unpack(y[u * COLUMNS_PER_THREAD + j]);
        y[u * COLUMNS_PER_THREAD + j] = b[first_b + min(j, following) * ld + at];
        for (var l = 0u; l < WIDTH; l++) {
          sums[j] = fma(p[l], q[l], sums[j]);
        }
      }
    }
  }

  for (var j = 0u; j < COLUMNS_PER_THREAD; j++) {
    sh[j * THREADS + index] = sums[j];
  }
  for (var half = THREADS_PER_OUTPUT / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if lane < half {
      for (var j = 0u; j < COLUMNS_PER_THREAD; j++) {
        sh[j * THREADS + index] += sh[j * THREADS + index + half];
      }
    }
  }
  workgroupBarrier();
  let column = tile.y * COLUMNS + index;
  if index < COLUMNS && column < params.n {
    let at = params.c_offset + tile.z * params.c_batch + column * select(1u, params.c_ld, TRANS_C == 1u);
    c[at] = finish(sh[index % COLUMNS_PER_THREAD * THREADS + index / COLUMNS_PER_THREAD * THREADS_PER_OUTPUT], 0u, column, at);
  }
}
