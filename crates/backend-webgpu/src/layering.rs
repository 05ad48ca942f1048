//! Checks that the modules of this crate import one another in one direction, and that few files of one import one another.

mod cycles;
mod imports;

use std::path::Path;

use cycles::Circles;
use imports::Imports;

/// The modules of the crate, each of which imports none that comes later. `compute` and what follows are the backend's own
/// API.
const LAYERS: [&str; 24] = [
    "sync",
    "unchecked",
    "device",
    "cache",
    "kernels",
    "memory",
    "transfer",
    "recorder",
    "context",
    "ops",
    "opened",
    "uniformity",
    "custom",
    "backend",
    "sharing",
    "kernel_choice",
    "warm_up",
    "capture",
    "compute",
    "custom_api",
    "tune",
    "tuning",
    "factory",
    "lib",
];

/// Code of tests, and of features that only tests turn on, which imports every module.
const EXEMPT: [&str; 9] = [
    "interleavings",
    "layering",
    "out_of_bounds",
    "memory/pool/tests.rs",
    "recorder/tests.rs",
    "ops/plans",
    "test_hooks",
    "tests.rs",
    "tests/",
];

/// The most files that may import one another in a circle.
const MOST_IN_A_CIRCLE: usize = 3;

/// The imports of this crate. What a module calls of its own children isn't imported.
fn of_this_crate() -> Imports {
    Imports::of_crate(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &EXEMPT)
}

/// The module of the crate that a file belongs to.
fn layer(file: &str) -> &str {
    file.split(['/', '.']).next().unwrap_or_default()
}

#[test]
fn modules_import_in_one_direction() {
    let imports = of_this_crate();
    let place = |file: &str| {
        let place = LAYERS.iter().position(|&known| known == layer(file));
        place.unwrap_or_else(|| panic!("the module of {file} is not in the list"))
    };
    let mut checked = 0;
    for (file, others) in imports.arrows() {
        for other in others {
            assert!(place(other) <= place(file), "{file} imports {other}, of a later module");
            checked += 1;
        }
    }
    assert!(checked > 500, "only {checked} imports were found");
}

#[test]
fn few_files_import_one_another() {
    let imports = of_this_crate();
    let arrows = imports.arrows();
    for circle in Circles::of(&arrows) {
        assert!(circle.len() <= MOST_IN_A_CIRCLE, "{} files import one another: {circle:?}", circle.len());
    }
}
