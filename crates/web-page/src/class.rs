//! The JavaScript class of a page's module.

/// Declares `Engine`, the class of a module, around the `engine::Engine` that the crate makes of a device: how scripts open
/// it, and what they hear of its device. The crate's `error::thrown` makes an `Error` to throw of its errors, which
/// [`BackendError`](backend_api::BackendError) converts to. Panics are shown from the module's start on.
#[macro_export]
macro_rules! engine_class {
    ($(#[$doc:meta])*) => {
        #[wasm_bindgen::prelude::wasm_bindgen(start)]
        fn start() {
            $crate::show_panics();
        }

        $(#[$doc])*
        #[wasm_bindgen::prelude::wasm_bindgen]
        #[derive(Debug)]
        pub struct Engine(engine::Engine);

        #[wasm_bindgen::prelude::wasm_bindgen]
        impl Engine {
            /// Opens a backend: `"auto"`, `"webgpu"` or `"cpu"`.
            pub async fn open(backend: String) -> Result<Self, js_sys::Error> {
                let device = $crate::Device::open(&backend).await;
                Ok(Self(engine::Engine::new(device.map_err(|error| error::thrown(&error.into()))?)))
            }

            /// What was opened, as JSON: `backend`, `name`, `api`, `kind`, `reason`.
            pub fn device(&self) -> Result<String, js_sys::Error> {
                $crate::json(&self.0.device.report())
            }
        }
    };
}
