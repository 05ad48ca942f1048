use backend_api::*;
fn main() {
    let mut r = Registry::new();
    backend_webgpu::register(&mut r);
    for d in r.available() { println!("{d:?}"); }
    for d in r.available() {
        let b = r.create(&d.selector).unwrap();
        println!("{} caps {:?}", d.selector, b.capabilities());
        let x = b.alloc(4000).unwrap();
        let y = b.alloc(4000).unwrap();
        b.copy_htod(x, bytemuck::cast_slice(&vec![-1.5f32; 1000])).unwrap();
        b.fill(y, DType::F32, 1000, f64::NAN).unwrap();
        b.unary(UnaryOp::Square, x, y, 999).unwrap();
        b.unary(UnaryOp::Square, y, y, 500).unwrap();
        let v = b.view(y, 4 * 3 + 1, 7).unwrap();
        b.copy_htod(v, &[1, 2, 3, 4, 5, 6, 7]).unwrap();
        let mut out = vec![0f32; 1000];
        b.copy_dtoh(bytemuck::cast_slice_mut(&mut out), y).unwrap();
        println!("{:?} {} {} {}", &out[..8], out[499], out[998], out[999]);
        let t = std::time::Instant::now();
        let w = backend_webgpu::WebGpuBackend::select(&d.selector[7..]);
        let mut w = w; w.init().unwrap();
        println!("init {:?}", t.elapsed());
        let p = w.alloc(256).unwrap();
        w.unary(UnaryOp::Square, p, p, 64).unwrap(); w.synchronize().unwrap();
        let t = std::time::Instant::now();
        for _ in 0..20000 { w.unary(UnaryOp::Square, p, p, 64).unwrap(); }
        let rec = t.elapsed();
        w.synchronize().unwrap();
        println!("per op {:?} record, {:?} all", rec / 20000, t.elapsed() / 20000);
        let t = std::time::Instant::now();
        for _ in 0..100000 { w.device().unwrap().poll(wgpu::PollType::Poll).unwrap(); }
        println!("poll {:?}", t.elapsed() / 100000);
        let mut s = [0u8; 256];
        let t = std::time::Instant::now();
        for _ in 0..300 { w.unary(UnaryOp::Square, p, p, 64).unwrap(); w.copy_dtoh(&mut s, p).unwrap(); }
        println!("op+readback {:?}", t.elapsed() / 300);
        w.device().unwrap().destroy();
        println!("{:?}", w.unary(UnaryOp::Square, p, p, 64));
        println!("{:?}", w.synchronize());
        w.init().unwrap();
        println!("{:?}", w.free(p));
    }
}
