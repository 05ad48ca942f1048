//! Kernels chosen by measurement, where a caller asks for it.

use std::collections::HashMap;
use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{BackendResult, DType, MathMode};
use parking_lot::Mutex;

use super::kernel::Kernel;
use super::plan::Plan;
use super::skinny::FEW;
use super::{Forced, Windows, run, windows};
use crate::context::Context;

/// What was found to be fastest for each kind of product.
#[derive(Debug, Default)]
pub(crate) struct Tuning {
    known: Mutex<HashMap<Key, Forced>>,
}

/// What decides about the speed of a product: its sizes, its types, and how its factors lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    sizes: [usize; 4],
    dtypes: [DType; 3],
    trans: [bool; 2],
    /// Whether factors can be read as they are, by vectors.
    aligned: bool,
}

impl Key {
    fn new(desc: &MatmulDesc, windows: &Windows) -> Self {
        Self {
            sizes: [desc.m, desc.n, desc.k, desc.batch],
            dtypes: [desc.a.dtype, desc.b.dtype, desc.c.dtype],
            trans: [desc.trans_a.is_transposed(), desc.trans_b.is_transposed()],
            aligned: super::layout::reads_as_vectors(desc, windows),
        }
    }
}

/// Such as `4096x4096x4096x1 f16-f16-f32 nt aligned`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self.sizes.map(|size| size.to_string()).join("x");
        let dtypes = self.dtypes.map(DType::name).join("-");
        let trans = self.trans.map(|yes| if yes { "t" } else { "n" }).concat();
        let layout = if self.aligned { "aligned" } else { "odd" };
        write!(f, "{sizes} {dtypes} {trans} {layout}")
    }
}

impl std::str::FromStr for Key {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let words: Vec<&str> = text.split(' ').collect();
        let [sizes, dtypes, trans, layout] = words.try_into().map_err(|_| ())?;
        let sizes: Result<Vec<usize>, _> = sizes.split('x').map(str::parse).collect();
        let named = |name| DType::ALL.iter().copied().find(|dtype| dtype.name() == name);
        let dtypes: Option<Vec<DType>> = dtypes.split('-').map(named).collect();
        let key = Self {
            sizes: sizes.map_err(|_| ())?.try_into().map_err(|_| ())?,
            dtypes: dtypes.ok_or(())?.try_into().map_err(|_| ())?,
            trans: [trans.starts_with('t'), trans.ends_with('t')],
            aligned: layout == "aligned",
        };
        if key.to_string() == text { Ok(key) } else { Err(()) }
    }
}

impl Tuning {
    /// What was found for such a product.
    pub(super) fn get(&self, desc: &MatmulDesc, windows: &Windows) -> Option<Forced> {
        let known = self.known.lock();
        if known.is_empty() { None } else { known.get(&Key::new(desc, windows)).copied() }
    }

    /// A line for each kind of product, sorted.
    pub(crate) fn lines(&self) -> Vec<String> {
        let known = self.known.lock();
        let mut lines: Vec<String> = known.iter().map(|(key, kernel)| format!("{key} = {kernel}")).collect();
        lines.sort();
        lines
    }

    /// Takes a line; whether it could be read.
    pub(crate) fn learn(&self, line: &str) -> bool {
        let Some((key, kernel)) = line.split_once(" = ") else { return false };
        let (Ok(key), Ok(kernel)) = (key.parse(), Forced::parse("set_tuning", kernel)) else { return false };
        self.known.lock().insert(key, kernel);
        true
    }
}

/// Measures the kernels that can make a product and remembers the fastest. `measure` gives the seconds that a work takes,
/// or `None` when there is no time left.
pub(crate) fn tune_matmul(
    ctx: &Context,
    op: &'static str,
    desc: &MatmulDesc,
    mut measure: impl FnMut(&dyn Fn() -> BackendResult<()>) -> BackendResult<Option<f64>>,
) -> BackendResult<()> {
    // Another kernel has to be clearly faster, or chance would decide.
    const GAIN: f64 = 0.97;

    let Some(mut windows) = windows(ctx, op, desc)? else { return Ok(()) };
    if desc.math != MathMode::Standard {
        return Ok(());
    }
    let planned = Plan::by_estimate(ctx, desc, &windows);
    let key = Key::new(desc, &windows);
    // C may be an input too, so that nothing may be written there.
    let last = (desc.batch - 1) * desc.c.batch_stride + (desc.m - 1) * desc.c.ld + desc.n;
    let scratch = ctx.memory.scratch(op, (last * desc.c.dtype.size()).next_multiple_of(4))?;
    windows.c = ctx.output(op, &scratch, desc.c.dtype)?;

    let Some(time) = measure(&|| run(ctx, op, desc, &windows, &planned))? else { return Ok(()) };
    let (mut best, mut least) = (planned.as_forced(), time * GAIN);
    for candidate in candidates(desc, key.aligned).filter(|&candidate| candidate != planned.as_forced()) {
        let Some(plan) = Plan::as_asked(ctx, desc, &windows, candidate) else { continue };
        match measure(&|| run(ctx, op, desc, &windows, &plan))? {
            None => break,
            Some(time) if time < least => (best, least) = (candidate, time),
            Some(_) => {}
        }
    }
    ctx.tuning.known.lock().insert(key, best);
    Ok(())
}

/// Every kernel that may be of use, with every number of pieces that leaves each of them something to do, of factors as
/// they are and of copies.
fn candidates(desc: &MatmulDesc, aligned: bool) -> impl Iterator<Item = Forced> {
    let (k, single) = (desc.k, desc.batch == 1);
    let fewest = desc.m.min(desc.n);
    let copies = move |kernel: &Kernel| {
        let may_copy = !aligned && matches!(kernel, Kernel::Direct | Kernel::Tiled(_));
        if may_copy { [false, true].as_slice() } else { &[false] }
    };
    let possible = move |kernel: &Kernel| match kernel {
        Kernel::Skinny(_) => fewest <= FEW,
        Kernel::Matvec(_) => fewest == 1,
        _ => true,
    };
    Kernel::all().filter(possible).flat_map(move |kernel| {
        let splits = [1, 2, 4, 8, 16, 32].into_iter();
        splits.filter(move |&splits| splits == 1 || single && k / splits >= 128).flat_map(move |splits| {
            copies(&kernel).iter().map(move |&packed| Forced { kernel, splits, packed })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_can_be_written_and_read() {
        let line = "4096x1x300x2 f32-f16-f32 nt odd = direct/32x32x4+split4";
        let tuning = Tuning::default();
        assert!(tuning.learn(line));
        assert_eq!(tuning.lines(), [line]);
        for wrong in [
            "",
            "4096x1x300x2 f32-f16-f32 nt odd",
            "4096x1x300 f32-f16-f32 nt odd = direct/32x32x4",
            "4096x1x300x2 f32-f32 nt odd = direct/32x32x4",
            "4096x1x300x2 f32-f16-f32 nt odd = tiled/1x1x1",
        ] {
            assert!(!tuning.learn(wrong), "{wrong:?}");
        }
    }
}
