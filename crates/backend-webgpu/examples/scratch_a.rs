#![allow(missing_docs)]
use backend_api::*;
use backend_api::desc::*;
fn rnd(s: &mut u64) -> f32 { *s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); ((*s >> 33) as f32 / (1u64 << 31) as f32) * 2.0 - 1.0 }
fn up(b: &dyn ComputeBackend, v: &[f32]) -> u64 { let p = b.alloc(v.len() * 4).unwrap(); b.copy_htod(p, bytemuck::cast_slice(v)).unwrap(); p }
fn down(b: &dyn ComputeBackend, p: u64, n: usize) -> Vec<f32> { let mut v = vec![0f32; n]; b.copy_dtoh(bytemuck::cast_slice_mut(&mut v), p).unwrap(); v }
fn main() {
    let mut r = Registry::new();
    backend_webgpu::register(&mut r);
    let which = std::env::args().nth(1).unwrap_or_default();
    for d in r.available() {
        let b = r.create(&d.selector).unwrap();
        let b = b.as_ref();
        println!("{} {}", d.selector, d.api);
        let mut s = 1;
        if which.contains("g") {
        for (m, n, k) in [(1, 1, 1), (5, 7, 9), (64, 64, 64), (33, 65, 17), (130, 70, 40), (1, 200, 33), (128, 128, 16), (1100, 1100, 8)] {
            for t in 0..4 { let (ta, tb) = (t & 1 == 1, t & 2 == 2);
                let a: Vec<f32> = (0..m * k).map(|_| rnd(&mut s)).collect();
                let bb: Vec<f32> = (0..n * k).map(|_| rnd(&mut s)).collect();
                let (pa, pb, pc) = (up(b, &a), up(b, &bb), up(b, &vec![f32::NAN; m * n]));
                let tr = |x| if x { BackendTranspose::Trans } else { BackendTranspose::NoTrans };
                b.gemm(tr(ta), tr(tb), m, n, k, 1.0, pa, if ta { m } else { k }, pb, if tb { k } else { n }, 0.0, pc, n).unwrap();
                let c = down(b, pc, m * n);
                let mut e = 0f64;
                for i in 0..m { for j in 0..n { let mut x = 0f64; for l in 0..k { x += a[if ta { l * m + i } else { i * k + l }] as f64 * bb[if tb { j * k + l } else { l * n + j }] as f64; } let d = (x - c[i * n + j] as f64).abs(); if !(d <= e) { e = d } } }
                println!("gemm {m} {n} {k} {ta} {tb}: {e:e}");
                for p in [pa, pb, pc] { b.free(p).unwrap(); }
            } }
        for n in [128usize, 256, 512] {
            let (pa, pb, pc) = (up(b, &vec![0.5; n * n]), up(b, &vec![0.5; n * n]), up(b, &vec![0.0; n * n]));
            let go = || { b.gemm(BackendTranspose::NoTrans, BackendTranspose::NoTrans, n, n, n, 1.0, pa, n, pb, n, 0.0, pc, n).unwrap(); b.synchronize().unwrap() };
            go(); let t = std::time::Instant::now(); for _ in 0..3 { go(); } let t = t.elapsed().as_secs_f64() / 3.0;
            println!("gemm {n} {:.2} GFLOP/s", 2.0 * (n * n * n) as f64 / t / 1e9);
        }
        }
        if which.contains("c") {
        for (n, c, h, w, k, rr, ss, st, pa) in [(1, 1, 3, 3, 1, 1, 1, 1, 0), (2, 3, 9, 7, 5, 3, 3, 1, 1), (1, 4, 12, 11, 33, 5, 3, 2, 2), (3, 2, 8, 8, 40, 3, 1, 3, 0)] {
            let (p, q) = ((h + 2 * pa - rr) / st + 1, (w + 2 * pa - ss) / st + 1);
            let x: Vec<f32> = (0..n * c * h * w).map(|_| rnd(&mut s)).collect();
            let f: Vec<f32> = (0..k * c * rr * ss).map(|_| rnd(&mut s)).collect();
            let (px, pf, po) = (up(b, &x), up(b, &f), up(b, &vec![f32::NAN; n * k * p * q]));
            b.conv2d_forward(px, &[n, c, h, w], pf, &[k, c, rr, ss], po, &[n, k, p, q], &[st, st], &[pa, pa]).unwrap();
            let o = down(b, po, n * k * p * q);
            let mut e = 0f64;
            for ni in 0..n { for ki in 0..k { for y in 0..p { for xx in 0..q { let mut a = 0f64; for ci in 0..c { for ri in 0..rr { for si in 0..ss { let (iy, ix) = ((y * st + ri) as isize - pa as isize, (xx * st + si) as isize - pa as isize); if iy >= 0 && ix >= 0 && iy < h as isize && ix < w as isize { a += x[((ni * c + ci) * h + iy as usize) * w + ix as usize] as f64 * f[((ki * c + ci) * rr + ri) * ss + si] as f64 } } } } let d = (a - o[((ni * k + ki) * p + y) * q + xx] as f64).abs(); if !(d <= e) { e = d } } } } }
            println!("conv {e:e}");
        } }
        if which.contains("a") {
        for (bt, h, kvh, sq, sk, dd, causal) in [(1, 1, 1, 1, 1, 1, false), (2, 4, 2, 5, 7, 8, false), (1, 2, 2, 33, 70, 64, false), (1, 2, 1, 40, 33, 20, true), (1, 1, 1, 3, 100, 128, true), (1, 1, 1, 65, 65, 33, true), (1,1,1,10,4,200,true)] {
            let q: Vec<f32> = (0..bt * h * sq * dd).map(|_| rnd(&mut s)).collect();
            let k: Vec<f32> = (0..bt * kvh * sk * dd).map(|_| rnd(&mut s)).collect();
            let v: Vec<f32> = (0..bt * kvh * sk * dd).map(|_| rnd(&mut s)).collect();
            let (pq, pk, pv, po) = (up(b, &q), up(b, &k), up(b, &v), up(b, &vec![f32::NAN; bt * h * sq * dd]));
            let mut desc = AttentionDesc::new(DType::F32, [pq, pk, pv, po], [bt, h, sq, sk, dd]); desc.kv_heads = kvh; desc.causal = causal;
            b.attention_ext(&desc).unwrap();
            let o = down(b, po, q.len());
            let mut e = 0f64;
            for bi in 0..bt { for hi in 0..h { let g = hi / (h / kvh); for i in 0..sq {
                let sc: Vec<f64> = (0..sk).map(|j| if causal && j + sq > i + sk { f64::NEG_INFINITY } else { (0..dd).map(|x| q[((bi * h + hi) * sq + i) * dd + x] as f64 * k[((bi * kvh + g) * sk + j) * dd + x] as f64).sum::<f64>() / (dd as f64).sqrt() }).collect();
                let mx = sc.iter().cloned().fold(f64::NEG_INFINITY, f64::max);
                let ps: Vec<f64> = sc.iter().map(|x| if mx.is_finite() { (x - mx).exp() } else { 0.0 }).collect(); let tot: f64 = ps.iter().sum();
                for x in 0..dd { let want = if tot > 0.0 { (0..sk).map(|j| ps[j] * v[((bi * kvh + g) * sk + j) * dd + x] as f64).sum::<f64>() / tot } else { 0.0 }; let d = (want - o[((bi * h + hi) * sq + i) * dd + x] as f64).abs(); if !(d <= e) { e = d } } } } }
            println!("attention {bt} {h} {kvh} {sq} {sk} {dd} {causal}: {e:e}");
        } }
    }
}
