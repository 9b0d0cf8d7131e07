//! What people do to a hold on its page without deciding it: take it, give it back, assign it, let somebody stand in, set a new
//! deadline, have it asked again.
//!
//! Reads the posted form only; who may do it and what follows is the engine's to say (`submit/people.rs`).

use standfast_core::digest;
use standfast_core::id::HoldId;
use standfast_core::name::UserId;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::Principal;
use standfast_engine::{Adjustment, HoldAdjustment, IdempotencyKey};

use super::forms::Mistake;
use crate::html::PostedForm;

/// The longest that a form gives, in hours: a year.
const LONGEST: i64 = 24 * 366;

/// What a form of a hold page changes.
pub(super) fn adjustment(
    who: &Principal,
    hold: HoldId,
    posted: &PostedForm,
    now: Timestamp,
) -> Result<HoldAdjustment, Mistake> {
    let word = posted.get("action").unwrap_or_default();
    let what = match word.as_str() {
        "take" => Adjustment::Assign { to: Some(who.user.clone()), until: None },
        "release" => Adjustment::Assign { to: None, until: None },
        "assign" => Adjustment::Assign { to: Some(person(posted)?), until: end(posted, now)? },
        "delegate" => {
            let until = end(posted, now)?.ok_or_else(|| mistake("Enter for how many hours."))?;
            Adjustment::Delegate { to: person(posted)?, until }
        }
        "reopen" => Adjustment::Reopen { expires_at: end(posted, now)? },
        "again" => {
            let revision = posted.get("revision").and_then(|revision| revision.parse().ok());
            let revision = revision.ok_or_else(|| mistake("The form has no revision."))?;
            Adjustment::AskAgain { digest: None, revision: Some(revision) }
        }
        _ => return Err(mistake("The form has no action.")),
    };
    let once = posted.get("once").filter(|nonce| !nonce.is_empty()).map(|nonce| {
        // Of one page each button counts once, with what was entered beside it.
        let entered = ["to", "hours", "revision"].map(|name| posted.get(name).unwrap_or_default()).join(":");
        let key = format!("page:{nonce}:{word}:{entered}");
        let request = digest::of_bytes(key.as_bytes());
        IdempotencyKey::new(format!("/approve/{hold}/people"), key, request)
    });
    Ok(HoldAdjustment { hold, what, once })
}

fn person(posted: &PostedForm) -> Result<UserId, Mistake> {
    let name = posted.get("to").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| mistake("Enter who."))?;
    UserId::new(name).map_err(|bad| mistake(&format!("Invalid name of a person: {bad}.")))
}

/// Until when; none where the field is empty.
fn end(posted: &PostedForm, now: Timestamp) -> Result<Option<Timestamp>, Mistake> {
    let Some(text) = posted.get("hours").filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    let hours = text.trim().parse::<i64>().ok().filter(|hours| (1..=LONGEST).contains(hours));
    let hours = hours.ok_or_else(|| mistake("Enter a whole number of hours, a year at most."))?;
    Ok(Some(now.plus(Millis::hours(hours))))
}

fn mistake(text: &str) -> Mistake {
    Mistake(format!("{text} Nothing was changed."))
}
