//! Waiting for a condition, for as long as a loaded machine may need, and no longer.
//!
//! Tests wait on conditions, never for a time: whoever fails here says what did not become true.

use std::time::Duration;

/// How often a condition is looked at, for a minute.
const LOOKS: u32 = 1200;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits until something is true.
///
/// # Panics
///
/// When it still is not after a minute.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    panic!("after a minute still not: {what}");
}

/// Waits until there is something, and returns it.
///
/// # Panics
///
/// When there still is nothing after a minute.
pub async fn until_found<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS {
        if let Some(found) = find().await {
            return found;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    panic!("after a minute still not: {what}");
}

/// How often a race is run: as often as `cargo xtask faults` says, and usually so often.
#[must_use]
pub fn rounds(usual: usize) -> usize {
    std::env::var("STANDFAST_FAULT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The time of this machine, in milliseconds since 1970.
///
/// # Panics
///
/// When the clock of this machine stands before 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the fence is for the product; tests compare what it says with the time"
)]
#[must_use]
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}
