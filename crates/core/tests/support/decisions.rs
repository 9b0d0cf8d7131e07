//! What must hold of one decision: the command, what it led to, and the run it met.
//!
//! What must hold of the run after it is in `invariants.rs`; `fuzz.rs` calls both after each command.

use standfast_core::command::{Begin, Command};
use standfast_core::decide::{self, Answer, Transition};
use standfast_core::digest;
use standfast_core::event::Envelope;
use standfast_core::hold::Hold;
use standfast_core::id::CallNo;
use standfast_core::next::{self, NextStep};
use standfast_core::refusal::Refusal;

use super::Scene;
use super::invariants::check_stored_form;

/// What must hold of one decision, beside what must hold of the run after it.
pub(crate) fn check_decision(scene: &Scene, command: &Command, decided: &Transition) -> Result<(), String> {
    if *decided != scene.decided(command) {
        return Err("decided twice, it comes out differently".into());
    }
    check_stored_form(&decided.events)?;
    check_rules_of_one_command(scene, command, decided)?;
    if let Some(first) = decided.events.first() {
        let share = |envelope: &Envelope| envelope.at == first.at && envelope.actor == first.actor;
        if !decided.events.iter().all(share) {
            return Err("the events of one append differ in instant or actor".into());
        }
    }
    let had_work = scene.run.outcome().is_none();
    if decided.outcome.is_err() && decided.events != what_time_does(scene) {
        return Err(format!("refused ({:?}), and yet: {:?}", decided.outcome, decided.events));
    }
    if decided.outcome == Ok(Answer::Repeated) && decided.events != what_time_does(scene) {
        return Err("nothing changed, it says, and yet there are events".into());
    }
    if *command == Command::Tick && had_work && next::next(&decided.run, scene.now) == NextStep::Tick {
        return Err("after a tick another one is due at once".into());
    }
    Ok(())
}

/// Who may not decide does not, what was not shown does not start, and no deadline passes unnoticed.
fn check_rules_of_one_command(scene: &Scene, command: &Command, decided: &Transition) -> Result<(), String> {
    if needs_authority(command) && scene.authority.is_none() && decided.outcome.is_ok() {
        return Err("someone without authority decides".into());
    }
    if let (Command::Begin(begin), Ok(Answer::Done)) = (command, &decided.outcome) {
        let schema = scene.definition.tools[&begin.stored.tool].schema_digest();
        let files = decided.run.call(begin.call).and_then(|call| call.files);
        let runs = digest::of_call_with(&begin.stored.tool, &begin.stored.arguments, schema, files);
        if decided.run.call(begin.call).and_then(|call| call.digest) != Some(runs) {
            return Err("what runs was not shown".into());
        }
    }
    if let Command::Begin(begin) = command {
        check_tampering(scene, begin, decided)?;
    }
    let is_overdue = |hold: &&Hold| {
        let is_open = hold.expired_at.is_none() && hold.kind.can_expire();
        is_open && hold.at < decided.run.state.seq && hold.expires_at.is_some_and(|at| at <= scene.now)
    };
    match decided.run.state.holds.iter().find(is_overdue) {
        Some(hold) => Err(format!("hold {} is overdue", hold.key)),
        None => Ok(()),
    }
}

/// Other arguments than the log holds are refused for what they are, also when the run was moved since.
fn check_tampering(scene: &Scene, begin: &Begin, decided: &Transition) -> Result<(), String> {
    let honest = scene.begin(begin.call.0);
    let Command::Begin(Begin { stored, .. }) = &honest else { unreachable!("a begin") };
    let honest = Command::Begin(Begin { stored: stored.clone(), ..begin.clone() });
    let would_be_taken = scene.decided(&honest).outcome.is_ok();
    let is_tampered = matches!(decided.outcome, Err(Refusal::Tampered { .. }));
    let is_honest = begin.stored == *stored;
    if is_honest && is_tampered {
        Err("what the log holds is said to be tampered with".into())
    } else if !is_honest && would_be_taken && !is_tampered {
        Err(format!("other arguments than the log holds: {:?}", decided.outcome))
    } else {
        Ok(())
    }
}

fn needs_authority(command: &Command) -> bool {
    match command {
        Command::Resolve(_)
        | Command::ResolveAll(_)
        | Command::Reject(_)
        | Command::Vote(_)
        | Command::Edit(_)
        | Command::Assign { .. }
        | Command::Delegate { .. }
        | Command::Reopen { .. }
        | Command::Repin { .. } => true,
        Command::Say(_)
        | Command::Cancel { .. }
        | Command::Erase { .. }
        | Command::Claim(_)
        | Command::Propose(_)
        | Command::Finish { .. }
        | Command::Fail(_)
        | Command::StartWork { .. }
        | Command::Heartbeat { .. }
        | Command::Release { .. }
        | Command::RecordReply(_)
        | Command::RecordFailure(_)
        | Command::Begin(_)
        | Command::Return { .. }
        | Command::Progress { .. }
        | Command::FinishCall(_)
        | Command::Suspend(_)
        | Command::Orphan { .. }
        | Command::Tick => false,
    }
}

/// The events that the passing of time alone causes now: those before any command that is always refused.
fn what_time_does(scene: &Scene) -> Vec<Envelope> {
    let refused = Command::Return { call: CallNo(u32::MAX), attempt: 0 };
    let decided = decide::decide(&scene.run, &refused, &scene.context(None));
    assert!(decided.outcome.is_err());
    decided.events
}
