use backend_api::desc::*;
use backend_api::*;
use crate::context::Context;
macro_rules! stub { ($($n:ident: $t:ty),*) => { $(pub(crate) fn $n(_c: &Context, op: &'static str, _d: &$t) -> BackendResult<()> { Err(BackendError::Unsupported { op, need: "work".into() }) })* } }
stub!(reduce: ReduceDesc, binary: BinaryDesc<'_>, copy: CopyDesc<'_>, softmax: SoftmaxDesc, layer_norm: LayerNormDesc, rms_norm: RmsNormDesc, rope: RopeDesc, gather: GatherDesc);
