//! What chats send back, damaged: no button means more than it says (T8, T31).
//!
//! What is signed, and by whom, is `slack_clicks.rs` and `discord_clicks.rs`, compared with the makers' own packages from outside.

use standfast_core::id::{CallNo, HoldId, HoldKey, RunId, Secret, StorageKind};
use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;
use standfast_testkit::damage::each_text;

use super::clicks::Button;

/// T8, T31: what a button carried is taken as what it says, and written again it says the same.
#[test]
fn t8_no_button_means_more_than_it_carries() {
    let run =
        RunId::new(&Tenant::default_tenant(), StorageKind::Durable, Timestamp(1_762_000_000_000), [1; 5]);
    let hold = HoldId { run, key: HoldKey { call: CallNo(3), secret: Secret([77; 16]) } };
    let button = |approves, revision| {
        Button { approves, hold, revision, digest: "abcdefghijklmnopqrst".to_owned() }.text()
    };
    let (one, other) = (button(true, 0), button(false, 12));
    let mut taken = 0;
    each_text(&[&one, &other], 60_000, |text| {
        let Some(button) = Button::read(text) else { return };
        taken += 1;
        assert_eq!(Button::read(&button.text()).as_ref(), Some(&button), "{text}");
        assert_eq!(text.starts_with('a'), button.approves, "{text}");
        assert!(text.ends_with(&button.digest), "{text}");
    });
    assert!(taken > 50, "{taken}");
}
