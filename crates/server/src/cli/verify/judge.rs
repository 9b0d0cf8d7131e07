//! What makes a case pass: pure functions over what was seen, so that a server that does not keep its promise is noticed.
//!
//! `Ok` says in words what was seen, `Err` what is wrong with it. Nothing here asks a server.

use standfast_core::hold::{OnDeny, OnTimeout};

use super::stand_in::Start;

/// What was seen, or what is wrong with it.
pub(super) type Assessment = Result<String, String>;

/// A hold as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HoldSeen {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) state: String,
    pub(super) digest: String,
    pub(super) revision: u64,
    pub(super) arguments: String,
    pub(super) has_expired: bool,
}

/// The tool was started once, with these arguments.
pub(super) fn ran_once(starts: &[Start], arguments: &str) -> Assessment {
    match starts {
        [] => Err("it was approved, and the tool was not started".to_owned()),
        [start] if start.arguments == arguments => Ok("one start".to_owned()),
        [start] => Err(format!("the tool was started with {}, not with {arguments}", start.arguments)),
        more => Err(format!("the tool was started {} times for one approval", more.len())),
    }
}

/// The tool was not started.
pub(super) fn never_ran(starts: &[Start]) -> Assessment {
    match starts.len() {
        0 => Ok("no start".to_owned()),
        1 => Err("the tool was started, and must not have been".to_owned()),
        n => Err(format!("the tool was started {n} times, and must not have been")),
    }
}

/// The run went on to its end.
pub(super) fn completed(status: &str) -> Assessment {
    match status {
        "completed" => Ok("the run completed".to_owned()),
        other => Err(format!("the run did not complete: it is {other}")),
    }
}

/// A hold is pending as it was.
pub(super) fn same_hold(before: &HoldSeen, after: &HoldSeen) -> Assessment {
    if after.state != "open" {
        return Err(format!("the hold was pending before and is {} after", after.state));
    }
    if before != after {
        return Err(
            "the hold is another one than before: its digest, revision or arguments differ".to_owned()
        );
    }
    Ok("the hold was pending as before".to_owned())
}

/// What was seen of approvals at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Approvals {
    /// How many were sent.
    pub(super) sent: usize,
    /// How many were told that theirs decided.
    pub(super) told_decided: usize,
    /// How many decisions the log has.
    pub(super) in_log: usize,
}

/// One of them decided.
pub(super) fn one_decision(seen: Approvals) -> Assessment {
    match seen {
        Approvals { in_log: 0, .. } => Err("nobody's approval was recorded as the decision".to_owned()),
        Approvals { in_log, .. } if in_log > 1 => Err(format!("the log has {in_log} decisions of one hold")),
        Approvals { told_decided: 1, sent, .. } => Ok(format!("one decision of {sent} approvals at once")),
        Approvals { told_decided, .. } => {
            Err(format!("{told_decided} clients were told that their approval decided"))
        }
    }
}

/// An approval of something else was refused as stale, and the hold is as it was.
pub(super) fn refused_stale(status: u16, problem: &str, after: &HoldSeen) -> Assessment {
    if (200..300).contains(&status) {
        return Err(format!("an approval with another digest was accepted ({status})"));
    }
    if status != 409 || !problem.ends_with(":stale") {
        return Err(format!("an approval with another digest got {status} {problem}, not 409 stale"));
    }
    if after.state != "open" {
        return Err("the hold is not pending any more after an approval that was refused".to_owned());
    }
    Ok("refused with 409 stale, still pending".to_owned())
}

/// After a kill inside the tool a person is asked.
pub(super) fn asks_person(hold: &HoldSeen) -> Assessment {
    match hold.kind.as_str() {
        "recovery" => Ok("outcome unknown, a person is asked".to_owned()),
        other => Err(format!("a person is asked by a hold of kind {other}, not recovery")),
    }
}

/// None of these was acknowledged; no status is a request without an answer.
pub(super) fn none_acknowledged(asked: &[(&str, Option<u16>)]) -> Assessment {
    let accepted = asked.iter().find(|(_, status)| status.is_some_and(|code| (200..300).contains(&code)));
    if let Some((what, Some(status))) = accepted {
        return Err(format!("{what} was answered with {status} without a store"));
    }
    let words: Vec<String> = asked
        .iter()
        .map(|(what, status)| match status {
            Some(status) => format!("{what}: {status}"),
            None => format!("{what}: no answer"),
        })
        .collect();
    Ok(words.join(", "))
}

/// What a denial makes of a run.
pub(super) fn after_denial(on_deny: OnDeny, status: &str) -> Assessment {
    let expected = match on_deny {
        OnDeny::Continue => "completed",
        OnDeny::Cancel => "canceled",
    };
    let word = match on_deny {
        OnDeny::Continue => "continue",
        OnDeny::Cancel => "cancel",
    };
    if status == expected {
        Ok(format!("on_deny: {word}, the run is {status}"))
    } else {
        Err(format!("on_deny is {word}, and the run is {status}, not {expected}"))
    }
}

/// What silence makes of a run and its hold.
pub(super) fn after_silence(
    on_timeout: OnTimeout,
    on_deny: OnDeny,
    status: &str,
    hold: &HoldSeen,
) -> Assessment {
    let (word, expected) = match (on_timeout, on_deny) {
        (OnTimeout::Fail, _) => ("fail", "failed"),
        (OnTimeout::Cancel, _) => ("cancel", "canceled"),
        (OnTimeout::Deny, OnDeny::Cancel) => ("deny", "canceled"),
        (OnTimeout::Deny, OnDeny::Continue) => ("deny", "completed"),
        (OnTimeout::ResumeWithError, _) => ("resume_with_error", "completed"),
        (OnTimeout::Keep, _) => ("keep", "held"),
    };
    if status != expected {
        return Err(format!("on_timeout is {word}, and the run is {status}, not {expected}"));
    }
    if on_timeout == OnTimeout::Keep && !(hold.state == "open" && hold.has_expired) {
        return Err("on_timeout is keep, and the hold is not pending as expired".to_owned());
    }
    Ok(format!("on_timeout: {word}, the run is {status}"))
}

/// All of them, in one sentence.
pub(super) fn all(judged: impl IntoIterator<Item = Assessment>) -> Assessment {
    Ok(judged.into_iter().collect::<Result<Vec<String>, String>>()?.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(arguments: &str) -> Start {
        Start { run: "run_1".into(), tool: "pay".into(), attempt: 1, arguments: arguments.into() }
    }

    fn hold() -> HoldSeen {
        HoldSeen {
            id: "hold_1".into(),
            kind: "approval".into(),
            state: "open".into(),
            digest: "aa".into(),
            revision: 1,
            arguments: "{}".into(),
            has_expired: false,
        }
    }

    #[test]
    fn a_second_start_is_noticed() {
        assert!(ran_once(&[start("{}")], "{}").is_ok());
        let twice = [start("{}"), start("{}")];
        assert_eq!(ran_once(&twice, "{}").unwrap_err(), "the tool was started 2 times for one approval");
        assert!(ran_once(&[], "{}").is_err());
        assert!(never_ran(&[start("{}")]).is_err());
        assert!(never_ran(&[]).is_ok());
    }

    #[test]
    fn other_arguments_than_the_approved_ones_are_noticed() {
        let wrong = ran_once(&[start(r#"{"amount": 1}"#)], r#"{"amount":1}"#).unwrap_err();
        assert!(wrong.contains(r#"{"amount": 1}, not with {"amount":1}"#), "{wrong}");
    }

    #[test]
    fn a_hold_that_changed_or_went_away_is_noticed() {
        assert!(same_hold(&hold(), &hold()).is_ok());
        let decided = HoldSeen { state: "decided".into(), ..hold() };
        assert!(same_hold(&hold(), &decided).unwrap_err().contains("is decided after"));
        for other in [
            HoldSeen { digest: "bb".into(), ..hold() },
            HoldSeen { revision: 2, ..hold() },
            HoldSeen { arguments: "{\"a\":1}".into(), ..hold() },
            HoldSeen { id: "hold_2".into(), ..hold() },
        ] {
            assert!(same_hold(&hold(), &other).unwrap_err().contains("another one"));
        }
    }

    #[test]
    fn two_decisions_of_one_hold_are_noticed() {
        let seen = Approvals { sent: 4, told_decided: 1, in_log: 1 };
        assert_eq!(one_decision(seen).unwrap(), "one decision of 4 approvals at once");
        for wrong in [
            Approvals { in_log: 2, ..seen },
            Approvals { in_log: 0, ..seen },
            Approvals { told_decided: 2, ..seen },
            Approvals { told_decided: 0, ..seen },
        ] {
            assert!(one_decision(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_stale_approval_that_counts_is_noticed() {
        let stale = "urn:standfast:problem:stale";
        assert!(refused_stale(409, stale, &hold()).is_ok());
        assert!(refused_stale(200, "", &hold()).unwrap_err().contains("accepted"));
        assert!(refused_stale(403, "urn:standfast:problem:not-allowed", &hold()).is_err());
        let decided = HoldSeen { state: "decided".into(), ..hold() };
        assert!(refused_stale(409, stale, &decided).is_err());
    }

    #[test]
    fn a_yes_without_a_store_is_noticed() {
        let asked = [("a new run", Some(503)), ("an approval", None)];
        assert_eq!(none_acknowledged(&asked).unwrap(), "a new run: 503, an approval: no answer");
        let wrong = none_acknowledged(&[("a new run", Some(503)), ("an approval", Some(200))]).unwrap_err();
        assert_eq!(wrong, "an approval was answered with 200 without a store");
    }

    #[test]
    fn an_unknown_outcome_that_nobody_is_asked_about_is_noticed() {
        assert!(asks_person(&HoldSeen { kind: "recovery".into(), ..hold() }).is_ok());
        assert!(asks_person(&hold()).is_err());
        assert!(completed("held").is_err());
    }

    #[test]
    fn silence_and_denials_do_what_the_file_says() {
        let (go_on, cancel) = (OnDeny::Continue, OnDeny::Cancel);
        let decided = HoldSeen { state: "decided".into(), ..hold() };
        for (on_timeout, on_deny, status) in [
            (OnTimeout::Fail, go_on, "failed"),
            (OnTimeout::Cancel, go_on, "canceled"),
            (OnTimeout::Deny, go_on, "completed"),
            (OnTimeout::Deny, cancel, "canceled"),
            (OnTimeout::ResumeWithError, cancel, "completed"),
        ] {
            assert!(after_silence(on_timeout, on_deny, status, &decided).is_ok());
            assert!(after_silence(on_timeout, on_deny, "held", &decided).is_err());
        }
        let late = HoldSeen { has_expired: true, ..hold() };
        assert!(after_silence(OnTimeout::Keep, go_on, "held", &late).is_ok());
        assert!(after_silence(OnTimeout::Keep, go_on, "held", &hold()).is_err());
        assert!(after_silence(OnTimeout::Keep, go_on, "failed", &late).is_err());
        assert!(after_denial(cancel, "canceled").is_ok());
        assert!(after_denial(cancel, "completed").is_err());
        assert!(after_denial(go_on, "completed").is_ok());
    }

    #[test]
    fn the_first_that_is_wrong_counts() {
        assert_eq!(all([Ok("a".to_owned()), Ok("b".to_owned())]).unwrap(), "a; b");
        assert_eq!(all([Ok("a".to_owned()), Err("c".to_owned())]).unwrap_err(), "c");
    }
}
