//! Tells the compiler that there is a way to build these tests in which libFuzzer makes the inputs: `cargo xtask fuzz`.
//!
//! What is different then is `damage.rs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(fuzzing_libfuzzer)");
}
