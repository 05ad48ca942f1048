//! What was found by measuring kernels, and how it is written down.

use std::collections::HashMap;
use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{DType, DeviceInfo};

use super::{KernelOverride, Windows};
use crate::device::plausible_compute_units;
use crate::ops::shared::kernel_override::KernelOverride as _;
use crate::ops::state::State;
use crate::sync::Mutex;

/// Which kernel stays for a product that was measured here and elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// The one that was measured elsewhere.
    Replace,
    /// The one that is known.
    #[cfg_attr(target_family = "wasm", expect(dead_code, reason = "a page has no files"))]
    KeepOwn,
}

/// What was found to be fastest on a device for each kind of product, and what is known of the device besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning<'a> {
    fastest: &'a Fastest,
    device: &'a State,
}

/// The fastest kernel for each kind of product that was measured.
#[derive(Debug, Default)]
struct Fastest(Mutex<HashMap<Key, KernelOverride>>);

/// What the line with the device's compute units begins with.
const COMPUTE_UNITS: &str = "compute_units";

/// What decides about the speed of a product: its sizes, its types, and how its operands lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    sizes: [usize; 4],
    dtypes: [DType; 3],
    trans: [bool; 2],
    /// Whether operands can be read as they are, by vectors.
    pub(super) aligned: bool,
}

impl Key {
    pub(super) fn new(desc: &MatmulDesc, windows: &Windows) -> Self {
        Self {
            sizes: [desc.m, desc.n, desc.k, desc.batch],
            dtypes: [desc.a.dtype, desc.b.dtype, desc.c.dtype],
            trans: [desc.trans_a.is_transposed(), desc.trans_b.is_transposed()],
            aligned: super::layout::reads_as_vectors(desc, windows, 4),
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

impl<'a> Tuning<'a> {
    pub(crate) fn of(device: &'a State) -> Self {
        Self { fastest: device.of(), device }
    }

    /// What was found for such a product.
    pub(super) fn get(&self, desc: &MatmulDesc, windows: &Windows) -> Option<KernelOverride> {
        let known = self.fastest.0.lock();
        if known.is_empty() { None } else { known.get(&Key::new(desc, windows)).copied() }
    }

    /// Uses this kernel for such products from now on.
    #[cfg(not(target_family = "wasm"))]
    pub(super) fn keep(&self, key: Key, kernel: KernelOverride) {
        self.fastest.0.lock().insert(key, kernel);
    }

    /// Whether nothing is known.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.fastest.0.lock().is_empty() && self.device.tuned_compute_units().is_none()
    }

    /// What is known, as text: a line that names the adapter and driver, one with the compute units if a text
    /// had them, and one for each kind of product.
    pub(crate) fn text(&self, info: &DeviceInfo) -> String {
        std::iter::once(header(info)).chain(self.lines()).map(|line| line + "\n").collect()
    }

    /// Takes the lines of a text that was found on this adapter, with this driver; how many products there were.
    pub(crate) fn learn_text(&self, info: &DeviceInfo, text: &str, conflict: Conflict) -> usize {
        let mut lines = text.lines();
        if lines.next() != Some(header(info).as_str()) {
            return 0;
        }
        lines.filter(|line| self.learn(line, conflict)).count()
    }

    /// The line with the compute units, and one for each kind of product, sorted.
    fn lines(&self) -> Vec<String> {
        let known = self.fastest.0.lock();
        let mut lines: Vec<String> = known.iter().map(|(key, kernel)| format!("{key} = {kernel}")).collect();
        lines.sort();
        let compute_units =
            self.device.tuned_compute_units().map(|count| format!("{COMPUTE_UNITS} = {count}"));
        compute_units.into_iter().chain(lines).collect()
    }

    /// Takes a line; whether it was a product's.
    fn learn(&self, line: &str, conflict: Conflict) -> bool {
        let Some((key, kernel)) = line.split_once(" = ") else { return false };
        if key == COMPUTE_UNITS {
            self.learn_compute_units(kernel, conflict);
            return false;
        }
        let (Ok(key), Ok(kernel)) = (key.parse(), KernelOverride::parse("set_tuning", kernel)) else {
            return false;
        };
        let mut known = self.fastest.0.lock();
        match conflict {
            Conflict::Replace => _ = known.insert(key, kernel),
            Conflict::KeepOwn => _ = known.entry(key).or_insert(kernel),
        }
        true
    }

    fn learn_compute_units(&self, number: &str, conflict: Conflict) {
        let Some(count) = number.parse().ok().and_then(plausible_compute_units) else { return };
        if conflict == Conflict::Replace || self.device.tuned_compute_units().is_none() {
            self.device.tune_compute_units(count);
        }
    }
}

/// The first line of a text, which names the adapter and driver.
fn header(DeviceInfo { name, api, driver, .. }: &DeviceInfo) -> String {
    format!("{name} | {api} | {driver}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_can_be_written_and_read() {
        let line = "4096x1x300x2 f32-f16-f32 nt odd = direct/32x128x4+split4";
        let device = State::default();
        let tuning = Tuning::of(&device);
        assert!(tuning.learn(line, Conflict::Replace));
        assert_eq!(tuning.lines(), [line]);
        for wrong in [
            "",
            "4096x1x300x2 f32-f16-f32 nt odd",
            "4096x1x300 f32-f16-f32 nt odd = direct/32x128x4",
            "4096x1x300x2 f32-f32 nt odd = direct/32x128x4",
            "4096x1x300x2 f32-f16-f32 nt odd = tiled/1x1x1",
        ] {
            assert!(!tuning.learn(wrong, Conflict::Replace), "{wrong:?}");
        }
    }

    #[test]
    fn compute_units_are_kept_with_the_products() {
        let device = State::default();
        let tuning = Tuning::of(&device);
        assert!(tuning.is_empty());
        let learn = |line: &str, conflict| {
            assert!(!tuning.learn(line, conflict), "it is no product");
            device.tuned_compute_units()
        };
        for wrong in
            ["compute_units = 0", "compute_units = -1", "compute_units = 1000000", "compute_units = x"]
        {
            assert_eq!(learn(wrong, Conflict::Replace), None, "{wrong:?}");
        }
        assert_eq!(learn("compute_units = 40", Conflict::KeepOwn), Some(40));
        assert_eq!(learn("compute_units = 20", Conflict::KeepOwn), Some(40));
        assert_eq!(learn("compute_units = 20", Conflict::Replace), Some(20));
        assert_eq!(learn("compute_units = 0", Conflict::Replace), Some(20));
        assert!(!tuning.is_empty());
        assert_eq!(tuning.lines(), ["compute_units = 20"]);
    }
}
