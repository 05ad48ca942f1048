//! A call of any method with any arguments.

use backend_api::{BackendResult, ComputeBackend};

use super::pool::Pool;
use super::{Call, elementwise, images, memory, movement, products, quant, rows};
use crate::rng::Rng;

pub(super) fn call<'a>(
    label: String,
    verdict: BackendResult<()>,
    make: impl Fn(&dyn ComputeBackend) -> BackendResult<()> + 'a,
) -> Call<'a> {
    Call { label, verdict, make: Box::new(make) }
}

/// The call of a method with a descriptor, which has views of what the call owns, and so is made where it is needed.
macro_rules! call_with {
    ($pool:ident, $method:ident, $label:ident, $desc:expr) => {{
        let op = stringify!($method);
        let verdict = $pool.check(op, $desc.operands(op).map(|(operands, ..)| operands));
        call($label, verdict, move |b| b.$method(&$desc))
    }};
}
pub(super) use call_with;

/// A method's random call.
pub(super) type Method = fn(&mut Rng, &Pool<'_>) -> Call<'static>;

/// A call of any method with any arguments.
pub(super) fn random(rng: &mut Rng, pool: &Pool<'_>) -> Call<'static> {
    let families = [
        elementwise::METHODS,
        images::METHODS,
        memory::METHODS,
        movement::METHODS,
        products::METHODS,
        quant::METHODS,
        rows::METHODS,
    ];
    let methods = families.concat();
    rng.pick(&methods)(rng, pool)
}
