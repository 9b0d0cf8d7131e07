//! A no, as gRPC tells it: a code, a text, and `google.rpc.Status` with details in the trailers.
//!
//! The details are those of the other bindings.

use prost::Message;
use prost_types::Any;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::super::error::A2aError;
use super::super::wire::Detail;
use super::proto::{BadRequest, ErrorInfo, FieldViolation, RetryInfo, RpcStatus};

/// An error as a status.
pub(in crate::a2a) fn status(error: &A2aError) -> Status {
    let code = code(error.kind.names().status);
    let mut details: Vec<Any> = error.details().into_iter().map(detail).collect();
    if let Some(seconds) = error.retry_after {
        let retry_delay = Some(prost_types::Duration { seconds: i64::from(seconds), nanos: 0 });
        details.push(any("RetryInfo", &RetryInfo { retry_delay }));
    }
    let all = RpcStatus { code: i32::from(code), message: error.message.clone(), details };
    let details = all.encode_to_vec().into();
    Status::with_details_and_metadata(code, error.message.clone(), details, MetadataMap::new())
}

/// A code by the name that the table of errors has for it.
fn code(name: &str) -> Code {
    match name {
        "INVALID_ARGUMENT" => Code::InvalidArgument,
        "NOT_FOUND" => Code::NotFound,
        "FAILED_PRECONDITION" => Code::FailedPrecondition,
        "UNIMPLEMENTED" => Code::Unimplemented,
        "UNAUTHENTICATED" => Code::Unauthenticated,
        "PERMISSION_DENIED" => Code::PermissionDenied,
        "RESOURCE_EXHAUSTED" => Code::ResourceExhausted,
        "UNAVAILABLE" => Code::Unavailable,
        _ => Code::Internal,
    }
}

fn detail(detail: Detail) -> Any {
    match detail {
        Detail::ErrorInfo { reason, domain, metadata } => {
            let metadata = metadata.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            any("ErrorInfo", &ErrorInfo { reason: reason.to_owned(), domain: domain.to_owned(), metadata })
        }
        Detail::BadRequest { field_violations } => {
            let violation = |it: super::super::wire::FieldViolation| FieldViolation {
                field: it.field,
                description: it.description,
            };
            any(
                "BadRequest",
                &BadRequest { field_violations: field_violations.into_iter().map(violation).collect() },
            )
        }
    }
}

fn any(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/google.rpc.{name}"), value: message.encode_to_vec() }
}

#[cfg(test)]
mod tests {
    use super::super::super::error::Kind;
    use super::*;

    /// Every error has a code, and says by its details which one it is.
    #[test]
    fn every_error_has_a_code_and_details() {
        for kind in Kind::ALL {
            let status = status(&A2aError::new(kind, "no"));
            let names = kind.names();
            assert_eq!(
                format!("{:?}", status.code()).to_uppercase(),
                names.status.replace('_', ""),
                "{kind:?}"
            );
            let all = RpcStatus::decode(status.details()).unwrap();
            let info = ErrorInfo::decode(all.details[0].value.as_slice()).unwrap();
            assert_eq!((info.reason.as_str(), info.domain.as_str()), (names.reason, "a2a-protocol.org"));
        }
        let wrong = status(&A2aError::invalid("id", "is empty"));
        let all = RpcStatus::decode(wrong.details()).unwrap();
        let violations = BadRequest::decode(all.details[1].value.as_slice()).unwrap().field_violations;
        assert_eq!((violations[0].field.as_str(), violations[0].description.as_str()), ("id", "is empty"));
    }
}
