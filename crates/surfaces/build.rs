//! Turns the definitions of A2A over gRPC into Rust, without a `protoc` on the machine.
//!
//! The files are in `proto/`; what is made is included by `a2a/grpc/proto.rs`, and by `a2a/v03/grpc/proto.rs`
//! for the version before.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/a2a.proto", "proto/a2a_v03.proto"], ["proto"])?;
    tonic_prost_build::configure().build_client(false).build_transport(false).compile_fds(files)?;
    Ok(())
}
