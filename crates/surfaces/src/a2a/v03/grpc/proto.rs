//! The messages and the service of A2A 0.3 over gRPC, made by `build.rs` from `proto/a2a_v03.proto`.
//!
//! Nothing outside `v03/grpc` uses them.

pub(super) use made::*;

#[expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "made by the compiler of the protocol, with attributes of its own"
)]
mod made {
    //! What `build.rs` made.

    #![allow(dead_code, unreachable_pub, clippy::all, reason = "made by the compiler of the protocol")]

    tonic::include_proto!("a2a.v1");
}
