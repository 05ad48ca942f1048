//! Backends by name, and the choice of the best one.

use std::fmt::Debug;
use std::sync::Arc;

use crate::error::named_by;
use crate::size::sort_few_by_key;
use crate::{BackendError, BackendFuture, BackendResult, ComputeBackend, DeviceInfo, MaybeSend, MaybeSync};

/// The environment variable that overrides `"auto"` and every [`BackendPreference`], with a name as
/// [`Registry::create`] takes it.
pub const OVERRIDE_VARIABLE: &str = "COMPUTE_BACKEND";

/// Makes backends of one name.
pub trait BackendFactory: Debug + MaybeSend + MaybeSync {
    /// The name, without a colon.
    fn name(&self) -> &str;

    /// The devices that can be opened, in the order of their index. Empty where there are none.
    fn devices(&self) -> Vec<DeviceInfo>;

    /// Opens a backend. `selector` is what followed the colon, empty for the best device: an index into
    /// [`devices`](Self::devices) or whatever else the backend understands.
    ///
    /// # Errors
    /// [`NoAdapter`](BackendError::NoAdapter) if nothing fits, and what [`ComputeBackend::init`] returns.
    fn create(&self, selector: &str) -> BackendResult<Box<dyn ComputeBackend>>;

    /// [`create`](Self::create) that waits without blocking.
    fn create_async<'a>(&'a self, selector: &'a str) -> BackendFuture<'a, Box<dyn ComputeBackend>> {
        Box::pin(async move { self.create(selector) })
    }

    /// [`devices`](Self::devices) that waits without blocking.
    fn devices_async(&self) -> BackendFuture<'_, Vec<DeviceInfo>> {
        Box::pin(async move { Ok(self.devices()) })
    }
}

/// Which kind of backend a runtime would like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendPreference {
    /// The fastest there is.
    #[default]
    Auto,
    /// A WebGPU adapter.
    WebGpu,
    /// The host CPU.
    Cpu,
}

impl BackendPreference {
    /// The name that a registry knows it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::WebGpu => "webgpu",
            Self::Cpu => "cpu",
        }
    }
}

/// An opened backend and why it is this one.
#[derive(Debug)]
pub struct Selection {
    /// The backend, initialised.
    pub backend: Box<dyn ComputeBackend>,
    /// Its device.
    pub device: DeviceInfo,
    /// Why it was chosen, for a log line: what was asked for and what was passed over.
    pub reason: String,
}

/// Backends by name.
///
/// A name is `"cpu"`, `"webgpu"`, `"webgpu:1"` (by adapter index), `"webgpu:vulkan"` (by interface) or a name
/// that a runtime registered itself. `"auto"` is the device of the lowest [`rank`](crate::DeviceKind::rank):
/// a discrete GPU before an integrated one, the host CPU before a software adapter; ties go to the backend
/// registered first.
///
/// A clone knows the same factories; what is registered with one of the two later isn't known to the other.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    factories: Vec<Arc<dyn BackendFactory>>,
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a backend; one of the same name is replaced.
    pub fn register(&mut self, factory: impl BackendFactory + 'static) {
        let factory: Arc<dyn BackendFactory> = Arc::new(factory);
        match self.factories.iter_mut().find(|known| known.name() == factory.name()) {
            Some(known) => *known = factory,
            None => self.factories.push(factory),
        }
    }

    /// The registered names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.factories.iter().map(|factory| factory.name()).collect()
    }

    /// Every device of every backend, each with the [`selector`](DeviceInfo::selector) that opens it.
    #[must_use]
    pub fn available(&self) -> Vec<DeviceInfo> {
        self.factories.iter().flat_map(|factory| factory.devices()).collect()
    }

    /// Opens the backend called `name`. For `"auto"`, the environment variable [`OVERRIDE_VARIABLE`] may name another.
    ///
    /// # Errors
    /// [`UnknownBackend`](BackendError::UnknownBackend), [`NoAdapter`](BackendError::NoAdapter), and what
    /// [`ComputeBackend::init`] returns.
    pub fn create(&self, name: &str) -> BackendResult<Box<dyn ComputeBackend>> {
        Ok(self.select(name)?.backend)
    }

    /// Opens a backend by preference, unless the environment variable [`OVERRIDE_VARIABLE`] names another.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_preferred(&self, preference: BackendPreference) -> BackendResult<Selection> {
        match override_name() {
            Some(name) => self.select_override(&name),
            None => self.select(preference.name()),
        }
    }

    /// [`create`](Self::create) that also tells which device was opened and why.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn select(&self, name: &str) -> BackendResult<Selection> {
        if name != "auto" {
            return self.open(name, format!("{name:?} was asked for"));
        }
        match override_name() {
            Some(name) if name != "auto" => self.select_override(&name),
            _ => self.select_best(self.available()),
        }
    }

    /// [`select`](Self::select) that waits without blocking. It doesn't look at the environment, which pages lack.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn select_async(&self, name: &str) -> BackendResult<Selection> {
        if name != "auto" {
            return self.open_async(name, format!("{name:?} was asked for")).await;
        }
        let mut devices = Vec::new();
        for factory in &self.factories {
            devices.extend(factory.devices_async().await?);
        }
        let mut choice = Choice::new(devices);
        while let Some(selector) = choice.next() {
            let opened = self.open_async(&selector, choice.reason()).await;
            if let Some(selection) = choice.settle(selector, opened) {
                return Ok(selection);
            }
        }
        Err(choice.failure())
    }

    fn select_override(&self, name: &str) -> BackendResult<Selection> {
        if name == "auto" {
            return self.select_best(self.available());
        }
        let opened = self.open(name, format!("the environment variable {OVERRIDE_VARIABLE} names {name:?}"));
        // Who has the variable in a profile may have asked for something else.
        opened.map_err(|error| match error {
            BackendError::UnknownBackend { name, known, .. } => {
                BackendError::UnknownBackend { name, variable: Some(OVERRIDE_VARIABLE), known }
            }
            BackendError::NoAdapter { mut tried } => {
                tried.insert(0, format!("{name:?}{}", named_by(Some(OVERRIDE_VARIABLE))));
                BackendError::NoAdapter { tried }
            }
            other => other,
        })
    }

    fn select_best(&self, devices: Vec<DeviceInfo>) -> BackendResult<Selection> {
        let mut choice = Choice::new(devices);
        while let Some(selector) = choice.next() {
            let opened = self.open(&selector, choice.reason());
            if let Some(selection) = choice.settle(selector, opened) {
                return Ok(selection);
            }
        }
        Err(choice.failure())
    }

    fn open(&self, name: &str, reason: String) -> BackendResult<Selection> {
        let (factory, selector) = self.find(name)?;
        let backend = factory.create(selector)?;
        Ok(Selection { device: backend.device_info()?, backend, reason })
    }

    async fn open_async(&self, name: &str, reason: String) -> BackendResult<Selection> {
        let (factory, selector) = self.find(name)?;
        let backend = factory.create_async(selector).await?;
        Ok(Selection { device: backend.device_info()?, backend, reason })
    }

    fn find<'a>(&self, name: &'a str) -> BackendResult<(&dyn BackendFactory, &'a str)> {
        let (base, selector) = name.split_once(':').unwrap_or((name, ""));
        match self.factories.iter().find(|factory| factory.name() == base) {
            Some(factory) => Ok((factory.as_ref(), selector)),
            None => Err(BackendError::UnknownBackend {
                name: name.to_owned(),
                variable: None,
                known: self.factories.iter().map(|factory| factory.name().to_owned()).collect(),
            }),
        }
    }
}

/// The devices of `"auto"`, tried from the best on; those that fail are told in the reason.
struct Choice {
    remaining: std::vec::IntoIter<DeviceInfo>,
    passed_over: Vec<String>,
}

impl Choice {
    fn new(mut devices: Vec<DeviceInfo>) -> Self {
        sort_few_by_key(&mut devices, |device| device.kind.rank());
        Self { remaining: devices.into_iter(), passed_over: Vec::new() }
    }

    fn next(&mut self) -> Option<String> {
        self.remaining.next().map(|device| device.selector)
    }

    fn reason(&self) -> String {
        let mut reason = String::from("the best device for \"auto\"");
        for failure in &self.passed_over {
            reason.push_str("; ");
            reason.push_str(failure);
        }
        for device in self.remaining.as_slice() {
            reason.push_str(&format!(
                "; preferred to {} ({}, {:?})",
                device.selector, device.name, device.kind
            ));
        }
        reason
    }

    fn settle(&mut self, selector: String, opened: BackendResult<Selection>) -> Option<Selection> {
        match opened {
            Ok(selection) => Some(selection),
            Err(error) => {
                self.passed_over.push(format!("{selector} failed: {error}"));
                None
            }
        }
    }

    fn failure(self) -> BackendError {
        BackendError::NoAdapter { tried: self.passed_over }
    }
}

/// The backend that the environment variable [`OVERRIDE_VARIABLE`] names, `"auto"` among them; `None` where it is empty. A name that
/// isn't Unicode has U+FFFD in place of what isn't, and no backend is called so.
#[must_use]
pub fn override_name() -> Option<String> {
    let name = std::env::var_os(OVERRIDE_VARIABLE)?;
    Some(name.to_string_lossy().into_owned()).filter(|name| !name.is_empty())
}
