//! Who is asked in particular, who stands in for whom, and until when: assign, delegate, reopen.
//!
//! None of it decides anything. In what role the sender may is worked out before (`Context::authority`); what follows when the
//! time is up is `clock.rs`.

use super::holds::{authority, closed, counted};
use super::{Answer, Draft};
use crate::event::{Event, HoldAssigned, HoldDelegated, HoldReopened};
use crate::hold::Delegation;
use crate::id::HoldKey;
use crate::name::UserId;
use crate::policy::Role;
use crate::refusal::Refusal;
use crate::time::Timestamp;

pub(super) fn assign(
    draft: &mut Draft<'_>,
    key: HoldKey,
    (to, until): (Option<&UserId>, Option<Timestamp>),
    open_before: &[HoldKey],
) -> Result<Answer, Refusal> {
    let Some(hold) = draft.run.hold(key) else { return closed(draft, key, open_before, None) };
    // Nobody in particular has no end.
    let until = until.filter(|_| to.is_some());
    let is_already = hold.assignee.as_ref() == to && hold.assigned_until == until;
    authority(draft, key)?;
    if until.is_some_and(|until| until <= draft.now) {
        return Err(Refusal::PastEnd(draft.run.hold_id(key)));
    }
    if is_already {
        return Ok(Answer::Repeated);
    }
    draft.emit(Event::HoldAssigned(HoldAssigned { hold: key, to: to.cloned(), until }));
    Ok(Answer::Done)
}

/// A place can be given on by whoever has it in their own right, once: not by who stands in, and not to who gives it.
pub(super) fn delegate(
    draft: &mut Draft<'_>,
    key: HoldKey,
    (to, until): (&UserId, Timestamp),
    open_before: &[HoldKey],
) -> Result<Answer, Refusal> {
    let Some(hold) = draft.run.hold(key).cloned() else { return closed(draft, key, open_before, None) };
    let role = authority(draft, key)?;
    let not_allowed = || Refusal::NotAllowed(Some(draft.run.hold_id(key)));
    let by = draft.ctx.actor.user().cloned().ok_or_else(not_allowed)?;
    if role == Role::Delegate || by == *to {
        return Err(not_allowed());
    }
    if until <= draft.now {
        return Err(Refusal::PastEnd(draft.run.hold_id(key)));
    }
    let delegation = Delegation { by, to: to.clone(), until, counts_for: counted(draft, &hold) };
    if hold.delegations.contains(&delegation) {
        return Ok(Answer::Repeated);
    }
    draft.emit(Event::HoldDelegated(HoldDelegated { hold: key, delegation, role }));
    Ok(Answer::Done)
}

/// Only a kept hold that expired: what silence closed stays closed, because the run went on from it.
pub(super) fn reopen(
    draft: &mut Draft<'_>,
    key: HoldKey,
    expires_at: Option<Timestamp>,
    open_before: &[HoldKey],
) -> Result<Answer, Refusal> {
    let Some(hold) = draft.run.hold(key) else { return closed(draft, key, open_before, None) };
    let is_expired = hold.expired_at.is_some();
    authority(draft, key)?;
    if !is_expired {
        return Err(Refusal::NotExpired(draft.run.hold_id(key)));
    }
    if expires_at.is_some_and(|at| at <= draft.now) {
        return Err(Refusal::PastEnd(draft.run.hold_id(key)));
    }
    draft.emit(Event::HoldReopened(HoldReopened { hold: key, expires_at }));
    Ok(Answer::Done)
}
