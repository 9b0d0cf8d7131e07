//! Votes and edits in any order: a call runs only when enough different people have agreed to what it is now, for every rule.
//!
//! The commands are the real ones; what must come of them is kept beside as plain sets. Single cases are in `asked_people.rs` and in
//! the scenarios of the store.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use proptest::prelude::*;
use standfast_core::command::{Choice, Command, Decide, Edit, Resolve};
use standfast_core::decide::Answer;
use standfast_core::hold::Demand;
use standfast_core::id::{CallNo, HoldKey};
use standfast_core::json::RawJson;
use standfast_core::name::{RuleId, UserId};
use standfast_core::policy::{Effect, Role, Verdict};
use standfast_core::refusal::Refusal;
use standfast_core::run::{CallOutcome, CallState};
use support::{SHELL, Scene, deny, person, user};

const CALL: CallNo = CallNo(1);

/// Who there is, and the rules that each of them counts for.
const PEOPLE: [(&str, &[&str]); 5] =
    [("ann", &["a"]), ("bo", &["a", "b"]), ("cy", &["b"]), ("dan", &[]), ("eve", &["a"])];

/// What somebody does, having seen a revision, or not saying which.
#[derive(Debug, Clone)]
struct Action {
    who: usize,
    kind: Kind,
    seen: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Approve,
    ApproveEdited,
    Edit,
    Deny,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let kind = prop_oneof![
        12 => Just(Kind::Approve),
        2 => Just(Kind::ApproveEdited),
        2 => Just(Kind::Edit),
        1 => Just(Kind::Deny),
    ];
    let seen = prop_oneof![1 => Just(None), 6 => (0_u32..4).prop_map(Some)];
    let action = (0..PEOPLE.len(), kind, seen).prop_map(|(who, kind, seen)| Action { who, kind, seen });
    proptest::collection::vec(action, 0..30)
}

/// The rules that hold the call, each with how many must agree.
fn quorums() -> impl Strategy<Value = Vec<(&'static str, u32)>> {
    prop_oneof![
        (1_u32..4).prop_map(|a| vec![("a", a)]),
        (1_u32..4, 1_u32..3).prop_map(|(a, b)| vec![("a", a), ("b", b)]),
    ]
}

/// A call that these rules hold.
fn waiting(rules: &[(&str, u32)]) -> (Scene, HoldKey) {
    let verdict = |(name, quorum): &(&str, u32)| {
        let rule = RuleId::new(name).unwrap();
        let demand = Demand { quorum: *quorum, ..Demand::of(rule.clone()) };
        (CALL, Verdict { votes: *quorum, demand: Some(demand), ..Verdict::new(Effect::Hold, rule) })
    };
    let mut scene = Scene::of_loop();
    scene.verdicts.by_call = rules.iter().map(verdict).collect();
    scene.the_model_asks(&[SHELL]);
    let hold = scene.hold();
    (scene, hold)
}

/// Somebody comes, with what they count for.
fn comes(scene: &mut Scene, who: usize) {
    let (name, counts_for) = PEOPLE[who];
    scene.actor = person(name);
    scene.authority = Some(Role::Approver);
    scene.counts_for = counts_for.iter().map(|rule| RuleId::new(rule).unwrap()).collect();
}

fn does(scene: &mut Scene, hold: HoldKey, action: &Action, no: usize) -> Result<Answer, Refusal> {
    comes(scene, action.who);
    let decide = Decide { hold, digest: None, revision: action.seen };
    let arguments = RawJson::parse(&format!(r#"{{"n": {}}}"#, no + 10)).unwrap();
    let resolve = |resolution| {
        let (decide, idempotency_key, message) = (decide.clone(), None, None);
        Command::Resolve(Resolve { decide, resolution, idempotency_key, message })
    };
    let command = match action.kind {
        Kind::Approve => resolve(Choice::Approve),
        Kind::ApproveEdited => resolve(Choice::ApproveEdited { arguments }),
        Kind::Edit => Command::Edit(Edit { decide: decide.clone(), arguments }),
        Kind::Deny => resolve(deny()),
    };
    scene.send(command)
}

/// What must be so, as plain sets.
struct Expected {
    rules: Vec<(&'static str, u32)>,
    revision: u32,
    agreed: Vec<usize>,
    state: CallState,
}

impl Expected {
    fn counts(&self, who: usize) -> Vec<&'static str> {
        let counts_for = PEOPLE[who].1;
        self.rules.iter().map(|(rule, _)| *rule).filter(|rule| counts_for.contains(rule)).collect()
    }

    fn missing(&self) -> u32 {
        let missing = |(rule, quorum): &(&'static str, u32)| {
            let agreed = self.agreed.iter().filter(|who| self.counts(**who).contains(rule)).count();
            quorum.saturating_sub(u32::try_from(agreed).unwrap())
        };
        self.rules.iter().map(missing).max().unwrap()
    }
}

fn names(agreed: &[usize]) -> Vec<UserId> {
    agreed.iter().map(|who| user(PEOPLE[*who].0)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// C16, C4, C24: whoever does what in whatever order: the call is approved by the vote after which every rule has as many
    /// different people as it wants, all of whom saw the arguments of now, and by none before; an edit voids the votes; a denial is
    /// final; whoever counts for no rule, votes twice or saw something else changes nothing.
    #[test]
    fn t14_votes_and_edits_count_in_any_order(rules in quorums(), actions in actions()) {
        let (mut scene, hold) = waiting(&rules);
        let mut expected = Expected { rules, revision: 0, agreed: Vec::new(), state: CallState::Held };
        for (no, action) in actions.iter().enumerate() {
            let before = scene.log.len();
            let answer = does(&mut scene, hold, action, no);
            let counts = expected.counts(action.who);
            let is_stale = match action.seen {
                Some(seen) => seen != expected.revision,
                None => expected.revision > 0,
            };
            let changes_nothing = expected.state != CallState::Held || counts.is_empty() || is_stale;
            if changes_nothing {
                prop_assert!(answer.is_err(), "{action:?}: {answer:?}");
                prop_assert_eq!(scene.log.len(), before);
                continue;
            }
            match (action.kind, answer) {
                (Kind::Deny, answer) => {
                    prop_assert_eq!(answer, Ok(Answer::Done));
                    expected.state = CallState::Done(CallOutcome::Denied);
                }
                (Kind::Edit | Kind::ApproveEdited, Ok(Answer::Edited)) => {
                    expected.revision += 1;
                    expected.agreed.clear();
                }
                // Nobody but them is needed, so what they approve is what they wrote.
                (Kind::ApproveEdited, Ok(Answer::Done)) => {
                    prop_assert_eq!(counts.len(), expected.rules.len());
                    prop_assert!(expected.rules.iter().all(|(_, quorum)| *quorum == 1));
                    expected.state = CallState::Ready;
                }
                (Kind::Approve, Ok(Answer::Repeated)) => {
                    prop_assert!(expected.agreed.contains(&action.who));
                    prop_assert_eq!(scene.log.len(), before);
                }
                (Kind::Approve, Ok(answer)) => {
                    prop_assert!(!expected.agreed.contains(&action.who));
                    expected.agreed.push(action.who);
                    let missing = expected.missing();
                    if missing == 0 {
                        prop_assert_eq!(answer, Answer::Done);
                        expected.state = CallState::Ready;
                    } else {
                        let votes = u32::try_from(expected.agreed.len()).unwrap();
                        prop_assert_eq!(answer, Answer::Voted { votes, needed: votes + missing });
                    }
                }
                (kind, answer) => return Err(TestCaseError::fail(format!("{kind:?}: {answer:?}"))),
            }
            prop_assert_eq!(scene.run.call(CALL).unwrap().state, expected.state);
            if expected.state == CallState::Held {
                let open = scene.hold_of(1);
                prop_assert_eq!(open.revision, expected.revision);
                prop_assert_eq!(&open.votes, &names(&expected.agreed));
                prop_assert_eq!(open.votes_missing(), expected.missing());
            }
        }
    }

    /// The same people approve in another order, and the same comes of it.
    #[test]
    fn the_order_of_votes_means_nothing(
        rules in quorums(), chosen in proptest::collection::vec(any::<bool>(), PEOPLE.len()),
        order in Just((0..PEOPLE.len()).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let outcome = |order: &[usize]| {
            let (mut scene, hold) = waiting(&rules);
            for who in order.iter().filter(|who| chosen[**who]) {
                let _ = does(&mut scene, hold, &Action { who: *who, kind: Kind::Approve, seen: Some(0) }, 0);
            }
            scene.run.call(CALL).unwrap().state
        };
        prop_assert_eq!(outcome(&order), outcome(&[0, 1, 2, 3, 4]));
    }
}

/// C24: two rules that named nobody when the hold opened, and name different people by now: each one's people are needed.
#[test]
fn who_counts_for_one_rule_does_not_answer_the_other() {
    let (mut scene, hold) = waiting(&[("a", 1), ("b", 1)]);
    let yes = |who| Action { who, kind: Kind::Approve, seen: None };
    let [ann, cy] = [0, 2];
    assert_eq!(does(&mut scene, hold, &yes(ann), 0), Ok(Answer::Voted { votes: 1, needed: 2 }));
    assert_eq!(does(&mut scene, hold, &yes(ann), 0), Ok(Answer::Repeated));
    let open = scene.hold_of(1);
    assert!(open.has_quorum() && open.votes_missing() == 1);
    let change = Action { kind: Kind::ApproveEdited, ..yes(cy) };
    let mut edited = scene.clone();
    assert_eq!(does(&mut edited, hold, &change, 0), Ok(Answer::Edited), "what cy wrote ann has not seen");
    assert_eq!(does(&mut scene, hold, &yes(cy), 0), Ok(Answer::Done));
    assert_eq!(scene.run.call(CALL).unwrap().state, CallState::Ready);
    // Whoever counts for both is enough.
    let (mut scene, hold) = waiting(&[("a", 1), ("b", 1)]);
    assert_eq!(does(&mut scene, hold, &yes(1), 0), Ok(Answer::Done));
}
