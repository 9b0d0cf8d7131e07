//! Every case of the suite for every backend.
//!
//! What a case shows is its name; its body is in `src/conformance`.

mod memory {
    holdpoint_store::conformance!(holdpoint_store::conformance::memory);
}

mod sqlite {
    holdpoint_store::conformance!(holdpoint_store::conformance::sqlite);
}

mod postgres {
    holdpoint_store::conformance!(holdpoint_store::conformance::postgres);
}

mod beside {
    holdpoint_store::conformance!(holdpoint_store::conformance::beside);
}
