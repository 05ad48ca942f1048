//! The devices that the provider offers to ONNX Runtime, each opened when a session first asks for it.

use std::sync::{Arc, OnceLock};

use backend_api::{ComputeBackend, DeviceInfo, DeviceKind, Registry, override_name};
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// A device and its backend, which sessions share.
#[derive(Debug)]
pub(crate) struct Device {
    /// What it is.
    pub(crate) info: DeviceInfo,
    /// Its place in the list, which is the device id of its memory.
    pub(crate) index: u32,
    backend: Mutex<Option<Arc<dyn ComputeBackend>>>,
}

impl Device {
    fn new(info: DeviceInfo, index: usize, backend: Option<Arc<dyn ComputeBackend>>) -> Self {
        Self { info, index: u32::try_from(index).unwrap_or(u32::MAX), backend: Mutex::new(backend) }
    }

    /// The device's backend. A device that was lost is opened anew: its memory stays lost, but new sessions
    /// work.
    pub(crate) fn backend(&self) -> Result<Arc<dyn ComputeBackend>> {
        let mut open = self.backend.lock();
        if let Some(backend) = open.as_ref().filter(|backend| backend.is_initialized()) {
            return Ok(Arc::clone(backend));
        }
        let backend: Arc<dyn ComputeBackend> = Arc::from(registry().create(&self.info.selector)?);
        *open = Some(Arc::clone(&backend));
        Ok(backend)
    }
}

/// Every device that the provider offers, in the order of their ids.
///
/// The environment variable `COMPUTE_BACKEND` names the only one. Without it these are the GPUs: the CPU and
/// software adapters are slower than ONNX Runtime's own CPU provider, and a policy that prefers GPUs must not
/// choose them.
pub(crate) fn all() -> Result<&'static [Arc<Device>]> {
    static DEVICES: OnceLock<Vec<Arc<Device>>> = OnceLock::new();
    if let Some(devices) = DEVICES.get() {
        return Ok(devices);
    }
    let found = match asked_for() {
        Some(name) => vec![Arc::new(open(&name, 0)?)],
        None => {
            let is_gpu =
                |info: &DeviceInfo| !matches!(info.kind, DeviceKind::Cpu | DeviceKind::SoftwareAdapter);
            let mut found: Vec<DeviceInfo> = registry().available().into_iter().filter(is_gpu).collect();
            found.sort_by_key(|info| info.kind.rank());
            found.into_iter().enumerate().map(|(i, info)| Arc::new(Device::new(info, i, None))).collect()
        }
    };
    PROCESS.get_or_init(std::process::id);
    Ok(DEVICES.get_or_init(|| found))
}

/// The device that `selector` names: one of the list, or any that a registry knows, opened for the caller.
pub(crate) fn named(selector: &str, otherwise: &Arc<Device>) -> Result<Arc<Device>> {
    static NAMED: Mutex<Vec<(String, Arc<Device>)>> = Mutex::new(Vec::new());
    if let Some(device) = all()?.iter().find(|device| device.info.selector == selector) {
        return Ok(Arc::clone(device));
    }
    let mut named = NAMED.lock();
    if let Some((_, device)) = named.iter().find(|(name, _)| name == selector) {
        return Ok(Arc::clone(device));
    }
    // Its tensors pass for those of the device in whose place it computes.
    let device = Arc::new(open(selector, otherwise.index as usize)?);
    named.push((selector.to_owned(), Arc::clone(&device)));
    Ok(device)
}

/// The device with this id.
pub(crate) fn at(index: usize) -> Result<Arc<Device>> {
    let device = all()?.get(index).map(Arc::clone);
    device.ok_or_else(|| Error::invalid(format!("there is no device {index}")))
}

/// An error in a process that was forked from the one that found the devices: neither a driver's threads nor a pool's are
/// there, so that a run would wait for ever.
pub(crate) fn require_own_process() -> Result<()> {
    match PROCESS.get() {
        Some(&process) if process != std::process::id() => Err(Error::invalid(
            "this process was forked from one that had registered the provider, which can't compute here: start processes \
             with multiprocessing's spawn or forkserver, and register there"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

/// The process that found the devices.
static PROCESS: OnceLock<u32> = OnceLock::new();

fn open(name: &str, index: usize) -> Result<Device> {
    let selection = registry().select(name)?;
    // The selector of the request opens the same device again, whatever order adapters then come in.
    let info = DeviceInfo { selector: name.to_owned(), ..selection.device };
    Ok(Device::new(info, index, Some(Arc::from(selection.backend))))
}

fn asked_for() -> Option<String> {
    override_name().filter(|name| name != "auto")
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    backend_cpu::register(&mut registry);
    backend_webgpu::register(&mut registry);
    registry
}

#[cfg(test)]
mod tests {
    use backend_webgpu::WebGpuBackend;

    use super::*;
    use crate::kind::Kind;
    use crate::model::{Graph, Node};
    use crate::numbers::Numbers;
    use crate::plan::Plan;
    use crate::tensor::Tensor;

    /// y = x · w of 2 × 2 matrices.
    fn product(backend: &Arc<dyn ComputeBackend>) -> Plan {
        let node = Node {
            name: "the product".to_owned(),
            operator: "MatMul".to_owned(),
            inputs: vec!["x".to_owned(), "w".to_owned()],
            outputs: vec!["y".to_owned()],
            since: 13,
            ..Node::default()
        };
        let graph = Graph {
            nodes: vec![node],
            constants: [("w".to_owned(), matrix(2.0))].into(),
            inputs: vec!["x".to_owned()],
            outputs: vec!["y".to_owned()],
            ..Graph::default()
        };
        Plan::new(graph, backend).unwrap()
    }

    fn matrix(number: f64) -> Tensor {
        Tensor::host(Kind::F32, vec![2, 2], Numbers::Float(vec![number; 4])).unwrap()
    }

    fn run(plan: &Plan) -> Result<Vec<f64>> {
        Ok(plan.run(vec![Some(matrix(3.0))])?[0].numbers()?.floats())
    }

    #[test]
    fn after_a_loss_runs_fail_and_new_sessions_work() {
        if std::env::var("TEST_BACKENDS").is_ok_and(|names| !names.contains("webgpu")) {
            return;
        }
        let info = registry().available().into_iter().find(|info| info.selector.starts_with("webgpu"));
        let info = info.expect("an adapter, or TEST_BACKENDS=cpu");
        // Once by operations, once more, so that the next run would be a replay.
        for runs in [1, 3] {
            let mut gpu = WebGpuBackend::select(info.selector.trim_start_matches("webgpu:"));
            gpu.init().unwrap();
            let gpu = Arc::new(gpu);
            let device = Device::new(info.clone(), 0, Some(Arc::clone(&gpu) as Arc<dyn ComputeBackend>));
            let plan = product(&device.backend().unwrap());
            for _ in 0..runs {
                assert_eq!(run(&plan).unwrap(), [12.0; 4]);
            }
            gpu.device().unwrap().destroy();
            for _ in 0..2 {
                let error = run(&plan).unwrap_err().to_string();
                assert!(error.contains("lost"), "{error}");
            }
            assert_eq!(run(&product(&device.backend().unwrap())).unwrap(), [12.0; 4]);
            let error = run(&plan).unwrap_err().to_string();
            assert!(error.contains("lost"), "{error}");
        }
    }
}
