//! Random transfers, copies, fills and views.

use backend_api::BackendError;
use backend_api::support::{Access, Operand, checked_add};

use super::Call;
use super::calls::{Method, call};
use super::draw::{dtype, factor, size, sizes};
use super::pool::Pool;
use crate::rng::Rng;

pub(super) const METHODS: &[Method] = &[transfer, copy_dtod, fill, view, alloc];

fn bytes(arg: &'static str, ptr: u64, bytes: usize, access: Access) -> Operand {
    Operand::bytes(arg, ptr, bytes, access)
}

fn transfer<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (ptr, len, up) = (pool.pick(rng), rng.below(1100), rng.one_in(2));
    let verdict = pool.check("transfer", Ok([bytes("ptr", ptr, len, Access::Write)]));
    let label = format!("{} {ptr:#x} {len}", if up { "copy_htod" } else { "copy_dtoh" });
    call(label, verdict, move |b| match up {
        true => b.copy_htod(ptr, &vec![0; len]),
        false => b.copy_dtoh(&mut vec![0; len], ptr),
    })
}

fn copy_dtod<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (dst, src, len) = (pool.pick(rng), pool.pick(rng), size(rng));
    let operands = [bytes("dst", dst, len, Access::Write), bytes("src", src, len, Access::Read)];
    let verdict = pool.check("copy_dtod", Ok(operands));
    call(format!("copy_dtod {dst:#x} {src:#x} {len}"), verdict, move |b| b.copy_dtod(dst, src, len))
}

fn fill<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (dst, dtype, n, value) = (pool.pick(rng), dtype(rng), size(rng), factor(rng));
    let operand = Operand::new("fill", "dst", dst, dtype, n, Access::Write);
    let verdict = pool.check("fill", operand.map(|operand| [operand]));
    call(format!("fill {dst:#x} {dtype} {n} {value}"), verdict, move |b| b.fill(dst, dtype, n, value))
}

fn view<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (op, ptr, [offset, len]) = ("view", pool.pick(rng), sizes(rng));
    let verdict = match pool.region(ptr) {
        None => Err(BackendError::InvalidHandle { op, arg: "ptr", ptr }),
        Some(region) => checked_add(op, "end of the view", offset, len).and_then(|need| {
            let have = region.len;
            if need > have {
                Err(BackendError::BufferTooSmall { op, arg: "ptr", have, need })
            } else {
                Ok(())
            }
        }),
    };
    call(format!("view {ptr:#x} {offset} {len}"), verdict, move |b| b.free(b.view(ptr, offset, len)?))
}

/// An allocation that is given back, or a handle that was never given out.
fn alloc<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    if rng.one_in(2) {
        let ptr = rng.next_u64();
        let verdict = match pool.region(ptr) {
            Some(_) => Ok(()),
            None => Err(BackendError::InvalidHandle { op: "free", arg: "ptr", ptr }),
        };
        return call(format!("free {ptr:#x}"), verdict, move |b| b.free(ptr));
    }
    let bytes = if rng.one_in(9) { usize::MAX >> rng.below(3) } else { rng.below(100_000) };
    let too_much = BackendError::Limit { op: "alloc", what: "bytes", requested: bytes, max: 0 };
    let verdict = if bytes > 1 << 40 { Err(too_much) } else { Ok(()) };
    call(format!("alloc {bytes}"), verdict, move |b| {
        b.alloc(bytes).and_then(|ptr| b.free(ptr)).map_err(|error| match error {
            // On a CPU only the system's allocator knows that it is too much.
            BackendError::OutOfMemory { requested, .. } if requested > 1 << 40 => {
                BackendError::Limit { op: "alloc", what: "bytes", requested, max: 0 }
            }
            error => error,
        })
    })
}
