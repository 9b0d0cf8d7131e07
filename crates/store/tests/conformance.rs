//! Every case of the suite for every backend.
//!
//! What a case shows is its name; its body is in `src/conformance`.

mod memory {
    standfast_store::conformance!(standfast_store::conformance::memory);
}

mod sqlite {
    standfast_store::conformance!(standfast_store::conformance::sqlite);
}

mod postgres {
    standfast_store::conformance!(standfast_store::conformance::postgres);
}

mod beside {
    standfast_store::conformance!(standfast_store::conformance::beside);
}
