//! Links the plug-in so that its code is never unmapped: the helper thread of `omx` may run until the process ends.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
