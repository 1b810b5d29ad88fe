//! Passes the target platform of the build to the code, since cargo-fuzz names a folder after this
//! platform.

fn main() {
    let target = std::env::var("TARGET").expect("cargo says so");
    println!("cargo:rustc-env=XTASK_TARGET={target}");
    println!("cargo:rerun-if-changed=build.rs");
}
