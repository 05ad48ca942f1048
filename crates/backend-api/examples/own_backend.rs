//! A backend of one's own, chosen by name: memory in `Vec`s and one operation, `unary`, for three functions of f32.
//! Everything else that is called is `Unsupported`. `cargo run --package backend-api --example own_backend`
//!
//! What the contract asks of a call is checked by `backend_api::support`: the operation has only to compute.

use std::sync::{Mutex, MutexGuard, PoisonError};

use backend_api::desc::UnaryDesc;
use backend_api::support::{Access, HandleTable, Operand, Slice, check};
use backend_api::{
    BackendError, BackendFactory, BackendResult, Capabilities, Command, ComputeBackend, DType, DeviceInfo,
    DeviceKind, ErrorKind, Registry, UnaryOp,
};

/// Bytes of an allocation.
type Block = Mutex<Vec<u8>>;

#[derive(Debug, Default)]
struct OwnBackend {
    handles: Mutex<HandleTable<Block>>,
}

/// A panic elsewhere leaves memory as it is.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OwnBackend {
    /// The memory of operands, once everything about them is known to be right.
    fn resolve<const N: usize>(
        &self,
        op: &'static str,
        operands: &[Operand; N],
    ) -> BackendResult<[Option<Slice<Block>>; N]> {
        let handles = lock(&self.handles);
        check(op, operands, |ptr| handles.get(ptr).map(Slice::region))?;
        Ok(operands.map(|operand| handles.get(operand.ptr).cloned()))
    }

    fn unary(&self, op: &'static str, desc: &UnaryDesc<'_>) -> BackendResult<()> {
        let function: fn(f32) -> f32 = match desc.op {
            UnaryOp::Neg => |x| -x,
            UnaryOp::Abs => f32::abs,
            UnaryOp::Square => |x| x * x,
            _ => return Err(self.unsupported(op)),
        };
        if desc.input.dtype != DType::F32 {
            return Err(self.unsupported(op));
        }
        let (operands, loops) = desc.operands(op)?;
        let [Some(from), Some(to)] = self.resolve(op, &operands)? else { return Ok(()) };
        // Where each element is: loops from the outermost to the innermost, as extents and strides in elements.
        let mut places = vec![[desc.input.offset, desc.output.offset]];
        for (extent, strides) in loops {
            let along = |i: usize| move |[from, to]: [usize; 2]| [from + i * strides[0], to + i * strides[1]];
            places =
                (0..extent).flat_map(|i| places.iter().copied().map(along(i)).collect::<Vec<_>>()).collect();
        }
        for [read, written] in places {
            let at = |slice: &Slice<Block>, element: usize| slice.offset + 4 * element;
            let mut number = [0; 4];
            let start = at(&from, read);
            number.copy_from_slice(&lock(&from.block)[start..start + 4]);
            let result = function(f32::from_le_bytes(number));
            let start = at(&to, written);
            lock(&to.block)[start..start + 4].copy_from_slice(&result.to_le_bytes());
        }
        Ok(())
    }
}

impl ComputeBackend for OwnBackend {
    fn name(&self) -> &str {
        "own"
    }

    fn init(&mut self) -> BackendResult<()> {
        Ok(())
    }

    fn is_initialized(&self) -> bool {
        true
    }

    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        match command {
            Command::Unary(desc) => self.unary(op, desc),
            _ => Err(self.unsupported(op)),
        }
    }

    /// Each call has finished when it returns.
    fn synchronize(&self) -> BackendResult<()> {
        Ok(())
    }

    fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        let out_of_memory = |_| BackendError::OutOfMemory { requested: bytes, in_use: 0 };
        let mut block = Vec::new();
        block.try_reserve_exact(bytes).map_err(out_of_memory)?;
        block.resize(bytes, 0);
        let slice = Slice { block: Mutex::new(block).into(), offset: 0, len: bytes };
        lock(&self.handles).insert("alloc", slice)
    }

    fn free(&self, ptr: u64) -> BackendResult<()> {
        lock(&self.handles).remove("free", "ptr", ptr).map(drop)
    }

    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        lock(&self.handles).view(ptr, byte_offset, byte_len)
    }

    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()> {
        let operand = Operand::bytes("dst", dst, src.len(), Access::Write);
        if let [Some(to)] = self.resolve("copy_htod", &[operand])? {
            lock(&to.block)[to.offset..to.offset + src.len()].copy_from_slice(src);
        }
        Ok(())
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        let operand = Operand::bytes("src", src, dst.len(), Access::Read);
        if let [Some(from)] = self.resolve("copy_dtoh", &[operand])? {
            dst.copy_from_slice(&lock(&from.block)[from.offset..from.offset + dst.len()]);
        }
        Ok(())
    }

    fn capabilities(&self) -> BackendResult<Capabilities> {
        Ok(Capabilities::host())
    }

    fn device_info(&self) -> BackendResult<DeviceInfo> {
        Ok(device())
    }
}

/// What a registry lists.
fn device() -> DeviceInfo {
    DeviceInfo {
        selector: "own".to_owned(),
        name: "the host's memory".to_owned(),
        api: "none".to_owned(),
        driver: String::new(),
        kind: DeviceKind::Cpu,
    }
}

#[derive(Debug)]
struct OwnFactory;

impl BackendFactory for OwnFactory {
    fn name(&self) -> &str {
        "own"
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        vec![device()]
    }

    fn create(&self, _selector: &str) -> BackendResult<Box<dyn ComputeBackend>> {
        Ok(Box::new(OwnBackend::default()))
    }
}

fn main() -> BackendResult<()> {
    let mut registry = Registry::new();
    registry.register(OwnFactory);
    let backend = registry.create("own")?;

    let numbers = [1.0f32, -2.0, 3.0, -4.0];
    let x = backend.alloc(size_of_val(&numbers))?;
    backend.copy_htod(x, &numbers.map(f32::to_le_bytes).concat())?;
    backend.unary(UnaryOp::Square, x, x, numbers.len())?;
    let mut bytes = [0; 16];
    backend.copy_dtoh(&mut bytes, x)?;
    assert_eq!(bytes, [1.0f32, 4.0, 9.0, 16.0].map(f32::to_le_bytes).concat()[..]);

    // A bad call has the error that every backend gives.
    let too_long = backend.unary(UnaryOp::Neg, x, x, 5).unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::BufferTooSmall);
    println!("the squares of {numbers:?} are right; and of five numbers: {too_long}");
    backend.free(x)
}
