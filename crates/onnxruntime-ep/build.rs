//! Link arguments of the plugin library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // ONNX Runtime unloads the library with its last session, but drivers and thread pools leave threads and
    // thread-local destructors behind whose code must stay mapped.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
