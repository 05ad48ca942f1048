//! Backends by name, and the choice of the best one.
//!
//! The tests of `"auto"` need an environment without the override variable; those of the variable itself run
//! in a process of their own, because the environment is the whole process's.

mod fake;

use std::process::Command;

use backend_api::{
    BackendError, BackendPreference, ComputeBackend, DType, DeviceKind, ErrorKind, OVERRIDE_VARIABLE,
    Registry, desc,
};
use fake::FakeFactory;

fn fakes(factories: impl IntoIterator<Item = FakeFactory>) -> Registry {
    let mut registry = Registry::new();
    for factory in factories {
        registry.register(factory);
    }
    registry
}

/// The selector that `"auto"` settles on, and why.
fn auto(registry: &Registry) -> (String, String) {
    assert!(std::env::var_os(OVERRIDE_VARIABLE).is_none(), "run this suite without {OVERRIDE_VARIABLE}");
    let selection = registry.select("auto").unwrap();
    (selection.device.selector, selection.reason)
}

#[test]
fn the_workspace_registers_cpu_and_webgpu() {
    let registry = suites::registry();
    assert_eq!(registry.names(), ["cpu", "webgpu"]);
    let cpu = registry.create("cpu").unwrap();
    assert_eq!(cpu.name(), "cpu");
    assert!(cpu.is_initialized(), "an opened backend is initialised");
}

#[test]
fn available_lists_every_device_with_a_selector_that_opens_it() {
    let registry = suites::registry();
    let devices = registry.available();
    assert!(devices.iter().any(|device| device.selector.split(':').next() == Some("cpu")));
    for device in devices {
        let selection = registry.select(&device.selector).unwrap();
        assert_eq!(selection.device.name, device.name, "{}", device.selector);
        assert!(selection.reason.contains(&device.selector), "{}", selection.reason);
    }
}

#[test]
fn an_unknown_name_tells_the_known_ones() {
    let registry = fakes([FakeFactory::new("one", &[]), FakeFactory::new("two", &[])]);
    for name in ["three", "three:0", "", ":", "One", "one two"] {
        let expected = BackendError::UnknownBackend {
            name: name.to_owned(),
            variable: None,
            known: vec!["one".to_owned(), "two".to_owned()],
        };
        assert_eq!(registry.create(name).unwrap_err(), expected);
    }
    assert!(Registry::new().names().is_empty());
    assert_eq!(Registry::new().create("cpu").unwrap_err().kind(), ErrorKind::UnknownBackend);
}

#[test]
fn a_selector_reaches_the_factory() {
    let kinds = [DeviceKind::DiscreteGpu, DeviceKind::IntegratedGpu];
    let registry = fakes([FakeFactory::new("fake", &kinds)]);
    for (name, expected) in [("fake", "fake:0"), ("fake:0", "fake:0"), ("fake:1", "fake:1")] {
        assert_eq!(registry.select(name).unwrap().device.selector, expected);
    }
    for name in ["fake:2", "fake:x", "fake:-1", "fake:0:1"] {
        assert_eq!(registry.create(name).unwrap_err().kind(), ErrorKind::NoAdapter, "{name}");
    }
}

#[test]
fn the_real_backends_refuse_devices_that_are_not_there() {
    let registry = suites::registry();
    for name in ["webgpu:999", "webgpu:no such adapter", "webgpu:-1"] {
        assert_eq!(registry.create(name).unwrap_err().kind(), ErrorKind::NoAdapter, "{name}");
    }
}

#[test]
fn a_runtime_registers_its_own_backend_and_replaces_it() {
    let mut registry =
        fakes([FakeFactory::new("own", &[DeviceKind::Other]), FakeFactory::new("second", &[])]);
    assert_eq!(registry.create("own").unwrap().name(), "own");
    registry.register(FakeFactory::new("own", &[DeviceKind::VirtualGpu]));
    assert_eq!(registry.names(), ["own", "second"], "a replacement keeps its place");
    assert_eq!(registry.select("own").unwrap().device.kind, DeviceKind::VirtualGpu);
}

#[test]
fn auto_takes_the_best_kind_of_device() {
    use DeviceKind::{Cpu, DiscreteGpu, IntegratedGpu, Other, SoftwareAdapter, VirtualGpu};
    let best_first = [DiscreteGpu, IntegratedGpu, VirtualGpu, Other, Cpu, SoftwareAdapter];
    for (i, &better) in best_first.iter().enumerate() {
        for &worse in &best_first[i + 1..] {
            for kinds in [[better, worse], [worse, better]] {
                let registry =
                    fakes([FakeFactory::new("a", &kinds[..1]), FakeFactory::new("b", &kinds[1..])]);
                let (chosen, _) = auto(&registry);
                let expected = if kinds[0] == better { "a:0" } else { "b:0" };
                assert_eq!(chosen, expected, "{better:?} before {worse:?}");
            }
        }
    }
}

#[test]
fn ties_go_to_the_first_registered() {
    let gpu = [DeviceKind::DiscreteGpu, DeviceKind::DiscreteGpu];
    let registry = fakes([FakeFactory::new("first", &gpu), FakeFactory::new("second", &gpu)]);
    assert_eq!(auto(&registry).0, "first:0");
}

#[test]
fn a_device_that_fails_is_passed_over_and_told() {
    let kinds = [DeviceKind::DiscreteGpu, DeviceKind::IntegratedGpu];
    let registry = fakes([
        FakeFactory::new("gpu", &kinds).with_broken("0"),
        FakeFactory::new("host", &[DeviceKind::Cpu]),
    ]);
    let (chosen, reason) = auto(&registry);
    assert_eq!(chosen, "gpu:1");
    assert!(reason.contains("gpu:0 failed"), "{reason}");
    assert!(reason.contains("host:0"), "what it was preferred to is told: {reason}");

    let registry = fakes([
        FakeFactory::new("gpu", &kinds).with_broken("0").with_broken("1"),
        FakeFactory::new("host", &[DeviceKind::Cpu]),
    ]);
    let (chosen, reason) = auto(&registry);
    assert_eq!(chosen, "host:0");
    assert!(reason.contains("gpu:0 failed") && reason.contains("gpu:1 failed"), "{reason}");
}

#[test]
fn auto_without_any_device_tells_what_was_tried() {
    let none = fakes([FakeFactory::new("gpu", &[])]);
    assert_eq!(none.create("auto").unwrap_err(), BackendError::NoAdapter { tried: vec![] });
    let broken = fakes([FakeFactory::new("gpu", &[DeviceKind::DiscreteGpu]).with_broken("0")]);
    match broken.create("auto").unwrap_err() {
        BackendError::NoAdapter { tried } => assert!(tried[0].contains("gpu:0"), "{tried:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn preferences_are_names() {
    let registry = fakes([
        FakeFactory::new("webgpu", &[DeviceKind::SoftwareAdapter]),
        FakeFactory::new("cpu", &[DeviceKind::Cpu]),
    ]);
    let open = |preference| registry.create_preferred(preference).unwrap().device.selector;
    assert_eq!(auto(&registry).0, "cpu:0");
    assert_eq!(open(BackendPreference::Auto), "cpu:0");
    assert_eq!(open(BackendPreference::WebGpu), "webgpu:0");
    assert_eq!(open(BackendPreference::Cpu), "cpu:0");
}

#[test]
fn the_override_variable_beats_auto_and_preferences_but_not_names() {
    // The variable, and what it makes of "auto", of the preference for cpu, and of the name "cpu".
    for (variable, expected) in [
        ("", "gpu:0 cpu:0 cpu:0"),
        ("auto", "gpu:0 gpu:0 cpu:0"),
        ("cpu", "cpu:0 cpu:0 cpu:0"),
        ("gpu:0", "gpu:0 gpu:0 cpu:0"),
        ("nonsense", "UnknownBackend UnknownBackend cpu:0"),
        ("gpu:9", "NoAdapter NoAdapter cpu:0"),
    ] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "print_selections", "--ignored", "--nocapture"])
            .env(OVERRIDE_VARIABLE, variable)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&format!("<{expected}>")), "{OVERRIDE_VARIABLE}={variable}: {text}");
    }
}

/// The child of the test above.
#[test]
#[ignore = "run by another test, in a process with another environment"]
fn print_selections() {
    let registry = fakes([
        FakeFactory::new("gpu", &[DeviceKind::DiscreteGpu]),
        FakeFactory::new("cpu", &[DeviceKind::Cpu]),
    ]);
    let shown =
        [registry.select("auto"), registry.create_preferred(BackendPreference::Cpu), registry.select("cpu")]
            .map(|selected| match selected {
                Ok(selection) => selection.device.selector,
                Err(error) => format!("{:?}", error.kind()),
            });
    println!("<{}>", shown.join(" "));
}

#[test]
fn operations_that_a_backend_lacks_are_typed_errors() {
    let registry = fakes([FakeFactory::new("own", &[DeviceKind::Other])]);
    let backend: Box<dyn ComputeBackend> = registry.create("own").unwrap();
    let softmax = desc::SoftmaxDesc::rows(DType::F32, 1, 2, 3, 4);
    for error in [
        backend.softmax(&softmax).unwrap_err(),
        backend.view(1, 0, 4).unwrap_err(),
        backend.copy_dtod(1, 2, 4).unwrap_err(),
        backend.set_memory_budget(None).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("own"), "the error names the backend: {error}");
    }
}
