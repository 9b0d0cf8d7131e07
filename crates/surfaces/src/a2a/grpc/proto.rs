//! The messages and the service of A2A over gRPC, made by `build.rs` from the protocol's own definition; and those of
//! `google.rpc` that errors are sent with, which are few.
//!
//! Nothing outside `grpc` uses them.

use std::collections::BTreeMap;

pub(super) use made::*;

#[expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "made by the compiler of the protocol, with attributes of its own"
)]
mod made {
    //! What `build.rs` made.

    #![allow(dead_code, unreachable_pub, clippy::all, reason = "made by the compiler of the protocol")]

    tonic::include_proto!("lf.a2a.v1");
}

/// What every error carries in its trailers, with more about it.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) details: Vec<prost_types::Any>,
}

/// Which error it is.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ErrorInfo {
    #[prost(string, tag = "1")]
    pub(super) reason: String,
    #[prost(string, tag = "2")]
    pub(super) domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(super) metadata: BTreeMap<String, String>,
}

/// Which members of the request are wrong.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct BadRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) field_violations: Vec<FieldViolation>,
}

/// What is wrong with one of them.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FieldViolation {
    #[prost(string, tag = "1")]
    pub(super) field: String,
    #[prost(string, tag = "2")]
    pub(super) description: String,
}

/// When to try again.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub(super) retry_delay: Option<prost_types::Duration>,
}
