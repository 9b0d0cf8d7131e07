//! What stands where in a conversation, and what decisions make of a call.
//!
//! Calls that were left behind or that may have run are in `unknown.rs`.

mod unknown;

use super::*;
use crate::actor::Actor;
use crate::command::{Choice, Command, Decide, Edit, OnHold, RecordReply, Suspend, SuspendFor};
use crate::decide::Answer;
use crate::message::ToolResult;
use crate::run::PromptBasis;
use crate::testing::{NODE, Story, body, json, reply, suspension, tool, user};
use crate::time::Millis;

/// The conversation, one line for each entry.
fn lines(story: &Story) -> Vec<String> {
    transcript(&story.events).iter().map(line).collect()
}

fn line(entry: &Entry) -> String {
    match entry {
        Entry::User(user) => format!("user: {}", user.message.words()),
        Entry::Assistant(reply) => {
            let words = reply.text.as_ref().and_then(Body::inline).unwrap_or_default();
            let calls: Vec<_> = reply.calls.iter().map(|call| format!("{}:{}", call.no, call.tool)).collect();
            format!("model: {words} [{}]", calls.join(" "))
        }
        Entry::Tool(result) => format!("{}: {}", result.call, result.told().unwrap()),
    }
}

/// The results alone.
fn results(story: &Story) -> Vec<String> {
    let is_result = |entry: &&Entry| matches!(entry, Entry::Tool(_));
    transcript(&story.events).iter().filter(is_result).map(line).collect()
}

fn held() -> Story {
    let mut story = Story::new();
    story.replies("", &[("write", r#"{"n":1}"#)]);
    story
}

fn started() -> Story {
    let mut story = held();
    story.decides(1, Choice::Approve);
    story.begins(1);
    story
}

fn ok(text: &str) -> ToolResult {
    ToolResult::Ok(Body::text(text))
}

#[test]
fn a_conversation_is_what_was_said_asked_and_done() {
    let mut story = Story::new();
    let opaque = json(r#"[{"signature" : "x="}]"#);
    let reply = RecordReply {
        opaque: Some(opaque.clone()),
        ..reply(
            PromptBasis { turn: 0, messages: 1, results: None },
            "I look",
            &[("read", r#"{ "path":"a" }"#)],
        )
    };
    story.by(Actor::Node(NODE), Command::RecordReply(reply));
    story.begins(1);
    story.finishes(1, ok("found"));

    let (no, id, tool) = (CallNo(1), "p0".to_owned(), tool("read"));
    let call = ReplyCall { no, id: id.clone(), tool: tool.clone(), arguments: body(r#"{ "path":"a" }"#) };
    assert_eq!(
        transcript(&story.events),
        [
            Entry::User(UserMessage { seq: Seq(2), message: Message::text("tidy up") }),
            Entry::Assistant(AssistantReply {
                seq: Seq(3),
                text: Some(Body::text("I look")),
                calls: vec![call],
                opaque: Some(Body::Json(opaque)),
                model: None,
            }),
            Entry::Tool(CallResult {
                call: no,
                id,
                tool,
                kind: ResultKind::Ok,
                content: Body::text("found"),
                ran_with: None,
            }),
        ]
    );
}

#[test]
fn results_stand_behind_their_reply_in_call_order_whenever_they_came() {
    let mut story = Story::new();
    story.replies("both", &[("write", "{}"), ("read", "{}")]);
    story.begins(2);
    story.finishes(2, ok("second"));
    assert_eq!(lines(&story), ["user: tidy up", "model: both [1:write 2:read]", "2: second"]);

    story.decides(1, Choice::Deny { reason: Some("too late in the day".into()) });
    story.replies("done", &[]);
    let denied = r#"1: {"status":"denied","reason":"too late in the day"}"#;
    let all = ["user: tidy up", "model: both [1:write 2:read]", denied, "2: second", "model: done []"];
    assert_eq!(lines(&story), all);
}

#[test]
fn a_message_during_a_turn_follows_its_results() {
    let mut story = Story::new();
    story.replies("", &[("read", "{}")]);
    story.begins(1);
    story.says("and hurry", OnHold::Refuse);
    assert_eq!(lines(&story), ["user: tidy up", "model:  [1:read]", "user: and hurry"]);

    story.finishes(1, ok("found"));
    story.replies("done", &[]);
    let all = ["user: tidy up", "model:  [1:read]", "1: found", "user: and hurry", "model: done []"];
    assert_eq!(lines(&story), all);
}

#[test]
fn a_message_that_the_model_had_not_seen_follows_its_reply() {
    let mut story = Story::new();
    let heard = story.run.heard();
    story.says("wait", OnHold::Refuse);
    story.replies_having_heard(heard, "done", &[]);
    assert_eq!(lines(&story), ["user: tidy up", "model: done []", "user: wait"]);
}

/// C4: the model gets the denial; without a reason, only that.
#[test]
fn a_denial_is_a_structured_result() {
    let mut story = held();
    story.decides(1, Choice::Deny { reason: None });
    assert_eq!(results(&story), [r#"1: {"status":"denied"}"#]);
}

/// C29, and calls that no tool, rule or parser takes: the text goes to the model.
#[test]
fn a_call_refused_at_the_door_says_why() {
    let mut story = Story::new();
    let mut reply = reply(PromptBasis { turn: 0, messages: 1, results: None }, "", &[("write", "{}")]);
    reply.calls[0].problem = Some("Tool requires approval but task tracking not enabled".into());
    story.by(Actor::Node(NODE), Command::RecordReply(reply));
    story.replies("", &[("banned", "{}"), ("read", "{")]);
    assert_eq!(
        results(&story),
        [
            r#"1: {"status":"refused","reason":"Tool requires approval but task tracking not enabled"}"#,
            r#"2: {"status":"refused","reason":"not executed: the policy forbids this call (about-banned)"}"#,
            "3: {\"status\":\"refused\",\"reason\":\"the arguments were not taken: this is not JSON: EOF while \
             parsing an object at line 1 column 1\"}",
        ]
    );
}

#[test]
fn a_call_forbidden_before_its_start_says_why() {
    let mut story = held();
    story.decides(1, Choice::Approve);
    story.bans("write");
    assert_eq!(story.begins(1), Answer::Refused);
    let why =
        r#"1: {"status":"refused","reason":"not executed: the policy forbids this call (about-write)"}"#;
    assert_eq!(results(&story), [why]);
}

/// S3-28 for people; S2-33 for outside jobs.
#[test]
fn what_expired_says_whom_it_waited_for() {
    let mut story = held();
    story.waits(Millis::hours(101));
    assert_eq!(results(&story), [r#"1: {"status":"expired","reason":"timeout waiting for user input"}"#]);

    let mut story = started();
    story.suspends(1, SuspendFor::External);
    story.waits(Millis::hours(25));
    assert_eq!(results(&story), [r#"1: {"status":"expired","reason":"Tool execution timed out"}"#]);
}

#[test]
fn what_a_newer_message_overtook_was_not_executed() {
    let mut story = held();
    story.says("never mind", OnHold::Supersede);
    let superseded = r#"1: {"status":"superseded","reason":"not executed, superseded by a newer message"}"#;
    assert_eq!(lines(&story), ["user: tidy up", "model:  [1:write]", superseded, "user: never mind"]);
}

/// C37: a withdrawn outside job is the error `Cancelled`, and the run goes on.
#[test]
fn a_withdrawn_job_is_cancelled() {
    let mut story = started();
    story.suspends(1, SuspendFor::External);
    story.decides(1, Choice::Withdraw);
    assert_eq!(results(&story), [r#"1: {"status":"withdrawn","reason":"Cancelled"}"#]);
    let entries = transcript(&story.events);
    let Some(Entry::Tool(result)) = entries.last() else { panic!("no result") };
    assert_eq!((result.kind, result.reason()), (ResultKind::Withdrawn, Some("Cancelled".into())));
}

/// C18: the answer is the result of the call that asked.
#[test]
fn an_answer_is_the_result() {
    let mut story = started();
    story.suspends(1, SuspendFor::Input);
    story.decides(1, Choice::Answer { value: body(r#"{"size":9007199254740993}"#) });
    assert_eq!(results(&story), [r#"1: {"size":9007199254740993}"#]);
}

#[test]
fn a_login_is_no_result() {
    let mut story = started();
    story.suspends(1, SuspendFor::Auth);
    story.decides(1, Choice::Answer { value: Body::text("logged in") });
    assert_eq!(results(&story), Vec::<String>::new());
    story.begins(1);
    story.finishes(1, ok("written"));
    assert_eq!(results(&story), ["1: written"]);
}

/// C16: the reply keeps what the model asked for; the result says what ran.
#[test]
fn after_an_edit_the_model_sees_what_ran() {
    let mut story = held();
    story.decides(1, Choice::ApproveEdited { arguments: json(r#"{"n": 2}"#) });
    story.begins(1);
    story.finishes(1, ok("written"));
    let entries = transcript(&story.events);
    let Entry::Assistant(reply) = &entries[1] else { panic!("no reply") };
    assert_eq!(reply.calls[0].arguments, body(r#"{"n":1}"#));
    let Entry::Tool(result) = &entries[2] else { panic!("no result") };
    assert_eq!((&result.content, &result.ran_with), (&Body::text("written"), &Some(body(r#"{"n": 2}"#))));
    let told = "{\"note\":\"a person changed the arguments of this call; it ran with these\",\
                \"arguments_that_ran\":{\"n\": 2},\"result\":\"written\"}";
    assert_eq!(result.told(), Some(told.into()));
}

#[test]
fn an_edit_that_never_ran_is_not_mentioned() {
    let mut story = held();
    let decide = Decide { hold: story.hold(1), digest: None, revision: None };
    story.by(Actor::Person(user("bob")), Command::Edit(Edit { decide, arguments: json(r#"{"n": 2}"#) }));
    story.decides(1, Choice::Deny { reason: Some("no".into()) });
    assert_eq!(results(&story), [r#"1: {"status":"denied","reason":"no"}"#]);
}

/// S4-13: the answer to an outside worker's question is one more message.
#[test]
fn an_answer_to_an_outside_worker_is_a_message() {
    let mut story = Story::outside();
    let worker = crate::testing::worker();
    let suspend = Suspend { worker: Some(worker.clone()), ..suspension(CallNo::RUN, SuspendFor::Input) };
    story.by(Actor::Outside(worker), Command::Suspend(suspend));
    story.decides(0, Choice::Answer { value: Body::text("large") });
    assert_eq!(lines(&story), ["user: tidy up", "user: large"]);
}

#[test]
fn large_values_pass_as_they_are() {
    let mut story = held();
    let long = "x".repeat(crate::body::INLINE_MAX + 1);
    story.decides(1, Choice::Approve);
    story.begins(1);
    story.finishes(1, ok(&long));
    let blobs: Vec<_> = story.events.iter_mut().flat_map(|envelope| envelope.event.outsource()).collect();
    let entries = transcript(&story.events);
    let Some(Entry::Tool(result)) = entries.last() else { panic!("no result") };
    assert_eq!((&result.content, result.told()), (&Body::Blob(blobs[0].name), None));
}
