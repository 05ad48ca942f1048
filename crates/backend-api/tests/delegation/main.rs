//! What the trait provides over a backend's own methods: the positional operations, zeroed memory, recorded
//! calls, shared backends, and buffers and graphs that free themselves.

mod memory;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use backend_api::desc::*;
use backend_api::owned::{Buffer, Graph};
use backend_api::support::Calls;
use backend_api::*;
use memory::{FRESH, Memory, note};

/// The result of a future that has nothing to wait for.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn zeroed_memory_is_zero_to_its_last_byte() {
    let memory = Memory::opened();
    for bytes in 0..=13 {
        let ptr = memory.alloc_zeroed(bytes).unwrap();
        let mut content = vec![FRESH; bytes];
        memory.copy_dtoh(&mut content, ptr).unwrap();
        assert_eq!(content, vec![0; bytes]);
        assert_eq!(memory.live(), [1, 0], "of {bytes} bytes, the view of the last ones is freed");
        memory.free(ptr).unwrap();
    }
}

#[test]
fn memory_that_cannot_be_zeroed_is_given_back() {
    for refused in ["alloc", "alloc_zeroed", "copy_htod"] {
        let memory = Memory::opened().refusing(refused);
        assert_eq!(memory.alloc_zeroed(7), Err(memory.unsupported(refused)));
        assert_eq!(memory.live(), [0, 0], "{refused} is refused");
    }
}

#[test]
fn positional_operations_are_descriptors_of_f32() {
    use BackendTranspose::{NoTrans, Trans};
    let memory = Memory::opened();
    memory.gemm(Trans, NoTrans, 2, 3, 4, 0.5, 1, 5, 2, 6, 0.25, 3, 7).unwrap();
    memory.batched_gemm(NoTrans, Trans, 2, 3, 4, 0.5, 1, 5, 20, 2, 6, 30, 0.25, 3, 7, 40, 9).unwrap();
    memory.conv2d_forward(1, &[2, 3, 8, 9], 2, &[4, 3, 3, 2], 3, &[2, 4, 5, 10], &[2, 1], &[2, 1]).unwrap();
    memory.attention(1, 2, 3, 4, 2, 3, 5, 7, 8, 0.5, true).unwrap();
    memory.reduce(ReduceOp::Max, 1, 2, &[3, 4, 5], 1).unwrap();
    memory.unary(UnaryOp::Exp, 1, 2, 9).unwrap();
    memory.binary(BinaryOp::Sub, 1, 2, 3, 9).unwrap();

    let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
    let product = |[a, b, c]: [Matrix; 3]| MatmulDesc::new(2, 3, 4, a, b, c).with_scale(0.5, 0.25);
    let matrices = [matrix(1, 5), matrix(2, 6), matrix(3, 7)];
    let [a, b, c] = matrices;
    let strided = [a.with_batch_stride(20), b.with_batch_stride(30), c.with_batch_stride(40)];
    let window = Window::new([3, 2]).with_stride([2, 1]).with_padding([2, 1]);
    let conv = ConvDesc::new(DType::F32, 1, 2, 3, ConvShape::new(ImageShape::nchw([2, 3, 8, 9]), 4, window));
    let shape = AttentionShape { batch: 2, heads: 3, seq_q: 5, seq_kv: 7, head_dim: 8 };
    let attention = AttentionDesc::new(DType::F32, 1, 2, 3, 4, shape).with_scale(0.5).with_causal(true);
    let (extents, vector) = ([3, 4, 5], [9]);
    let cube = TensorDesc::packed(1, DType::F32, &extents);
    let vector = |ptr| TensorDesc::packed(ptr, DType::F32, &vector);
    let expected = [
        note("gemm", Command::Matmul(&product(matrices).with_transpose(Trans, NoTrans))),
        note("batched_gemm", Command::Matmul(&product(strided).with_transpose(NoTrans, Trans).with_batch(9))),
        note("conv2d_forward", Command::Conv(&conv)),
        note("attention", Command::Attention(&attention)),
        note("reduce", Command::Reduce(&ReduceDesc::new(ReduceOp::Max, cube, &[1], 2))),
        note("unary", Command::Unary(&UnaryDesc::new(UnaryOp::Exp, vector(1), vector(2)))),
        note("binary", Command::Binary(&BinaryDesc::new(BinaryOp::Sub, vector(1), vector(2), vector(3)))),
    ];
    assert_eq!(memory.notes(), expected);
}

#[test]
fn recorded_calls_run_in_their_order_until_one_fails() {
    let memory = Memory::opened();
    let recorded = Calls::record(&memory, &mut |recorder| {
        recorder.fill(1, DType::F32, 4, 1.0)?;
        recorder.copy_dtod(2, 1, 16)?;
        recorder.unary(UnaryOp::Tanh, 2, 2, 4)
    });
    let calls = recorded.unwrap();
    let checked = memory.notes();
    assert_eq!((checked.len(), calls.len(), calls.is_empty()), (3, 3, false));
    calls.replay(&memory).unwrap();
    assert_eq!(memory.notes(), checked);
    let without_copies = Memory::opened().refusing("copy_dtod");
    assert_eq!(calls.replay(&without_copies), Err(memory.unsupported("copy_dtod")));
    assert_eq!(without_copies.notes(), checked[..1]);
    let nothing = Calls::record(&memory, &mut |_| Ok(())).unwrap();
    assert_eq!((nothing.len(), nothing.is_empty()), (0, true));
    // An operation that the checker refuses is an error there and then, and not recorded.
    let recorded = Calls::record(&without_copies, &mut |recorder| {
        assert_eq!(recorder.copy_dtod(2, 1, 16), Err(without_copies.unsupported("copy_dtod")));
        Ok(())
    });
    assert!(recorded.unwrap().is_empty());
}

#[test]
fn only_operations_can_be_captured() {
    let memory = Memory::opened();
    let recorded = Calls::record(&memory, &mut |recorder| {
        macro_rules! capturing {
            ($($method:ident($($arg:expr),*);)+) => {$(
                let op = stringify!($method);
                assert_eq!(recorder.$method($($arg),*).unwrap_err(), BackendError::Capturing { op });
            )+};
        }
        capturing! {
            synchronize(); alloc(4); free(1); view(1, 0, 4); copy_htod(1, &[0]); copy_dtoh(&mut [0], 1);
            capture(&mut |_| Ok(())); replay(1); free_graph(1); trim(); set_memory_budget(None);
        }
        let mut bytes = [FRESH];
        let waits = [
            ("copy_dtoh_async", now(recorder.copy_dtoh_async(&mut bytes, 1))),
            ("synchronize_async", now(recorder.synchronize_async())),
            ("warm_up_async", now(recorder.warm_up_async(&[]))),
        ];
        for (op, result) in waits {
            assert_eq!(result, Err(BackendError::Capturing { op }));
        }
        assert_eq!((recorder.name(), recorder.is_initialized()), ("memory", true));
        assert_eq!(recorder.memory_stats(), memory.memory_stats());
        Ok(())
    });
    assert!(recorded.unwrap().is_empty());
    assert_eq!(memory.notes(), [""; 0]);
}

#[test]
fn a_shared_backend_is_not_opened_behind_its_users_back() {
    let alone = &mut Arc::new(Memory::default());
    alone.init().unwrap();
    assert!(alone.is_initialized(), "an Arc that nobody shares opens its backend");
    let mut refused = Arc::new(Memory::default().refusing("init"));
    assert!(refused.init().is_err(), "the backend's own error");

    let mut closed = Arc::new(Memory::default());
    let mut other = Arc::clone(&closed);
    assert_eq!(other.init().unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(ComputeBackend::init(&mut &*closed).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(!closed.is_initialized());
    drop(other);
    closed.init().unwrap();
    let mut other = Arc::clone(&closed);
    assert_eq!((other.init(), ComputeBackend::init(&mut &*closed)), (Ok(()), Ok(())));
    let mut boxed: Box<dyn ComputeBackend> = Box::new(Memory::default());
    boxed.init().unwrap();
    assert!(boxed.is_initialized());
}

#[test]
fn a_backend_is_known_by_its_type() {
    let backend: &dyn ComputeBackend = &Memory::opened();
    assert_eq!(backend.downcast_ref::<Memory>().map(Memory::live), Some([0, 0]));
    assert!(backend.downcast_ref::<u32>().is_none());
}

#[test]
fn buffers_hold_their_content_and_free_themselves() {
    let memory = Arc::new(Memory::opened());
    let backend: Arc<dyn ComputeBackend> = memory.clone();
    let numbers = Buffer::from_slice(&backend, &[1.0f32, 2.0, 3.0]).unwrap();
    assert_eq!((numbers.bytes(), numbers.to_vec::<f32>().unwrap()), (12, vec![1.0, 2.0, 3.0]));
    assert_eq!(now(numbers.to_vec_async::<f32>()).unwrap(), [1.0, 2.0, 3.0]);
    let mut first = [0.0f32; 2];
    numbers.read(&mut first).unwrap();
    assert_eq!(first, [1.0, 2.0]);
    let mut first = [0.0f32; 1];
    now(numbers.read_async(&mut first)).unwrap();
    assert_eq!(first, [1.0]);
    numbers.upload(&[7.0f32]).unwrap();
    let tail = numbers.view(4, 8).unwrap();
    assert_eq!((tail.bytes(), tail.to_vec::<f32>().unwrap()), (8, vec![2.0, 3.0]));
    let expected = BackendError::Shape {
        op: "to_vec",
        what: "size in bytes",
        expected: Bound::MultipleOf(8),
        got: numbers.bytes(),
    };
    assert_eq!(numbers.to_vec::<f64>().unwrap_err(), expected);
    assert_eq!(numbers.to_vec::<f32>().unwrap(), [7.0, 2.0, 3.0]);
    assert_eq!(memory.live(), [2, 0]);
    drop(numbers);
    assert_eq!(tail.to_vec::<f32>().unwrap(), [2.0, 3.0], "a view outlives the buffer");
    drop(tail);

    let halves = Buffer::zeroed(&backend, DType::F16, &[3, 5]).unwrap();
    assert_eq!((halves.bytes(), halves.to_vec::<u8>().unwrap()), (30, vec![0; 30]));
    assert_eq!(Buffer::new::<u16>(&backend, &[3, 5]).unwrap().bytes(), halves.bytes());
    assert_eq!(Buffer::of(&backend, DType::F16, &[3, 5]).unwrap().bytes(), halves.bytes());
    let error = Buffer::of(&backend, DType::F32, &[usize::MAX / 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overflow);
    drop(halves);
    let refusing: Arc<dyn ComputeBackend> = Arc::new(Memory::opened().refusing("copy_htod"));
    assert!(Buffer::from_slice(&refusing, &[1u8]).is_err(), "an upload's error");
    assert_eq!(memory.live(), [0, 0]);
}

#[test]
fn graphs_run_their_operations_and_free_themselves() {
    let memory = Arc::new(Memory::opened());
    let backend: Arc<dyn ComputeBackend> = memory.clone();
    let graph = Graph::capture(&backend, |recorder| recorder.unary(UnaryOp::Tanh, 1, 2, 4)).unwrap();
    assert_eq!((memory.live(), memory.notes().len()), ([0, 1], 0));
    graph.replay().unwrap();
    graph.replay().unwrap();
    assert_eq!(memory.notes().len(), 2);
    drop(graph);
    assert_eq!(memory.live(), [0, 0]);
}
