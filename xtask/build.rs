//! Tells the code for which platform it is built: cargo-fuzz puts programs into a folder of that name.

fn main() {
    let target = std::env::var("TARGET").expect("cargo says so");
    println!("cargo:rustc-env=XTASK_TARGET={target}");
    println!("cargo:rerun-if-changed=build.rs");
}
