//! A session is a conversation: what the model is sent with a second run of it, in every dialect, over a restart.
//!
//! Budget and shortening are pure and tested with `standfast_core::transcript::history`; here it is what providers read.

use serde_json::Value;
use standfast_testkit::provider::{Answer, Fake};
use standfast_testkit::text;

use super::binary::{as_question, durable, serve};

/// A dialect: its name in the file, a stream that asks a person, one that says "Fertig.".
type Case<'a> = (&'a str, &'a [u8], &'a [u8]);

const CASES: [Case<'_>; 5] = [
    ("openai", include_bytes!("streams/openai_chat.sse"), include_bytes!("streams/words_openai_chat.sse")),
    ("anthropic", include_bytes!("streams/anthropic.sse"), include_bytes!("streams/words_anthropic.sse")),
    (
        "openai_responses",
        include_bytes!("streams/openai_responses.sse"),
        b"data: {\"type\":\"response.output_text.delta\",\"item_id\":\"m\",\"output_index\":0,\"content_index\":0,\"delta\":\"Fertig.\"}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"Fertig.\"}]}]}}\n\n",
    ),
    (
        "gemini",
        include_bytes!("streams/gemini.sse"),
        b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Fertig.\"}]},\"finishReason\":\"STOP\"}]}\n\n",
    ),
    (
        "ollama",
        include_bytes!("streams/ollama.ndjson"),
        b"{\"message\":{\"role\":\"assistant\",\"content\":\"Fertig.\"},\"done_reason\":\"stop\",\"done\":true}\n",
    ),
];

/// The messages of a request, whatever a dialect calls them.
fn messages(body: &str) -> Vec<Value> {
    let body: Value = serde_json::from_str(body).unwrap();
    let list = ["messages", "input", "contents"].iter().find_map(|key| body[key].as_array());
    let is_instruction = |one: &&Value| one["role"] != "system" && one["role"] != "developer";
    list.unwrap_or_else(|| panic!("no messages in {body}")).iter().filter(is_instruction).cloned().collect()
}

/// Where these stand in a request: each after the one before.
fn stand_in_order(kind: &str, body: &str, parts: &[&str]) {
    let spelled: Vec<String> = messages(body).iter().map(Value::to_string).collect();
    let spelled = spelled.join("\n");
    let mut from = 0;
    for part in parts {
        let found = spelled[from..].find(part);
        from += found.unwrap_or_else(|| panic!("{kind}: `{part}` is not where it belongs in\n{spelled}"));
    }
}

/// S0-10: a second run of a session is asked with what was said and done in the first, also after `kill -9`, and pinned:
/// each later turn of it is asked with the same. Another agent, and another session, know nothing of it.
#[test]
fn a_second_run_knows_what_was_said() {
    for (kind, asks, ends) in CASES {
        let asks = as_question(&String::from_utf8_lossy(asks));
        let words = Answer::stream(ends);
        let fake = Fake::answering(vec![
            Answer::stream(asks.clone()),
            words.clone(),
            Answer::stream(asks),
            // What somebody else says meanwhile, and then the rest.
            words.clone(),
            words.clone(),
            words,
        ]);
        let key = if kind == "ollama" { "" } else { ", api_key: '${OPENAI_API_KEY}'" };
        let llm = format!("{{type: {kind}, model: m-1, base_url: '{}'{key}}}", fake.url);
        let folder = durable(&llm, "  other: {llm: the-llm, session_store: main-db, task: {}}\n");
        let answer = |server: &standfast_testkit::Process, run: &Value, words: &str| {
            assert_eq!(run["status"], "held", "{kind}: {run}");
            server.ask_anyway(&["holds", "answer", text(&run["holds"][0]["id"]), words]);
            server.run_once(text(&run["id"]), "completed")
        };
        let first = serve(folder.path());
        let run = first.ask_anyway(&["send", "assistant", "My name is Zoë.", "--session", "talk", "--wait"]);
        answer(&first, &run, "seven of them");
        let alone = fake.request().unwrap().body;
        assert_eq!(messages(&alone).len(), 1, "{kind}: nothing came before: {alone}");
        fake.request().unwrap();
        drop(first);

        let second = serve(folder.path());
        let run =
            second.ask_anyway(&["send", "assistant", "What is my name?", "--session", "talk", "--wait"]);
        let said = ["My name is Zoë.", "suspend-for-input", "seven of them", "Fertig.", "What is my name?"];
        stand_in_order(kind, &fake.request().unwrap().body, &said);
        // Another run of the session ends meanwhile, and knows only what had ended; this one has begun before that.
        let meanwhile =
            second.ask_anyway(&["send", "assistant", "Am I late?", "--session", "talk", "--wait"]);
        assert_eq!(meanwhile["status"], "completed", "{kind}: {meanwhile}");
        let body = fake.request().unwrap().body;
        stand_in_order(kind, &body, &["My name is Zoë.", "Fertig.", "Am I late?"]);
        assert!(!body.contains("What is my name?"), "{kind}: that one has not ended: {body}");
        answer(&second, &run, "none");
        let again = fake.request().unwrap().body;
        stand_in_order(kind, &again, &[&said[..], &["none"]].concat());
        assert!(!again.contains("Am I late?"), "{kind}: pinned at its start: {again}");

        for (agent, session) in [("other", "talk"), ("assistant", "elsewhere")] {
            let run = second.ask_anyway(&["send", agent, "Who am I?", "--session", session, "--wait"]);
            assert_eq!(run["status"], "completed", "{kind}: {run}");
            let body = fake.request().unwrap().body;
            assert!(!body.contains("Zoë") && messages(&body).len() == 1, "{kind}: {body}");
        }
    }
}

/// `history_tokens: 0` keeps nothing in mind; a small budget leaves out what is oldest and says so.
#[test]
fn an_agent_says_how_much_it_keeps_in_mind() {
    let answers = || vec![Answer::stream(CASES[0].2)];
    for (budget, parts) in
        [(0, &["third"][..]), (6, &["(1 earlier request of this", "second", "Fertig.", "third"])]
    {
        let fake = Fake::answering(answers());
        let llm = format!("{{type: openai, model: m-1, base_url: '{}'}}", fake.url);
        let folder = durable(&llm, "");
        let path = folder.path().join("standfast.yaml");
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, config.replace("task: {}", &format!("task: {{}}, history_tokens: {budget}")))
            .unwrap();
        let server = serve(folder.path());
        for words in ["the first", "second", "third"] {
            let run = server.ask_anyway(&["send", "assistant", words, "--session", "talk", "--wait"]);
            assert_eq!(run["status"], "completed", "{run}");
        }
        let body = fake.requests().pop().unwrap().body;
        stand_in_order("openai", &body, parts);
        assert!(!body.contains("the first"), "{body}");
        assert_eq!(messages(&body).len(), parts.len(), "{body}");
    }
}
