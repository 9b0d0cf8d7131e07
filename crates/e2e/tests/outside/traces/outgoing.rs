//! What others are told of a trace, and what they tell: two real servers over A2A and over MCP, messages that name a trace
//! themselves, and the provider of a model.
//!
//! Both servers send to one collector, so a trace that goes on elsewhere is seen whole.

use serde_json::{Value, json};
use standfast_testkit::provider::{Answer, Fake};
use standfast_testkit::{Http, Process, folder, serve_command, start, text};

use super::collector::{Collector, Spans};
use super::{CALLER, stop};

const SAYS: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Noted.\"},\"finish_reason\":null}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn serve(
    collector: &Collector,
    name: &str,
    scripts: &[(&str, &str)],
    rest: &str,
) -> (Process, tempfile::TempDir) {
    let server = format!(
        "{rest}server: {{traces: {{endpoint: 'http://127.0.0.1:{}', service_name: {name}}}}}\n",
        collector.port
    );
    let folder = folder(scripts, &server);
    (start(&mut serve_command(folder.path())), folder)
}

/// Runs an agent in the caller's trace to its end.
async fn run(server: &Process, agent: &str) -> Value {
    let body = json!({"input": "please", "wait": "settled"}).to_string();
    let path = format!("/api/v1/agents/{agent}/runs");
    let answer = Http::new(&server.base).send("POST", &path, &[("traceparent", CALLER)], &body).await;
    server.run_once(text(&answer.body["id"]), "completed")
}

/// The span, and that those above it up to the caller are all there.
fn assert_below_caller(spans: &Spans, span: &Value) {
    let mut at = span;
    for _ in 0..20 {
        assert_eq!(at["trace"], CALLER[3..35], "{at:#}");
        if at["parent"] == CALLER[36..52] {
            return;
        }
        at = spans.one(|span| span["span"] == at["parent"]);
    }
    panic!("no way up from {span:#}");
}

/// Work that is handed to an agent elsewhere, and calls of tools elsewhere, belong to the same trace there.
#[tokio::test]
async fn a_trace_goes_on_at_another_server_over_a2a_and_mcp() {
    let collector = Collector::start("http");
    let (worker, _worker) = serve(
        &collector,
        "worker",
        &[("says", "replies:\n- text: done\n")],
        "agents: {helper: {llm: says}}\n",
    );
    let rest = format!(
        "tools:\n  remote: {{type: a2a, url: '{0}/v1/agents/helper', allowed_hosts: [127.0.0.1], requires_approval: false}}\n  \
         people: {{type: mcp, url: '{0}/mcp', allow: [check], overrides: {{check: {{requires_approval: false}}}}}}\n\
         agents: {{boss: {{llm: hands, tools: [remote]}}, asker: {{llm: asks, tools: [people]}}}}\n",
        worker.base
    );
    let hands =
        "replies:\n- calls:\n  - tool: remote\n    arguments: '{\"message\": \"help\"}'\n- text: done\n";
    let asks = "replies:\n- calls:\n  - tool: people__check\n    arguments: '{\"tool\": \"pay\", \"arguments\": {}}'\n- text: done\n";
    let (boss, _boss) = serve(&collector, "boss", &[("hands", hands), ("asks", asks)], &rest);
    run(&boss, "boss").await;
    run(&boss, "asker").await;
    stop(boss);
    stop(worker);
    let spans = collector.spans();
    let helped = spans.one(|span| span["name"] == "invoke_agent helper");
    assert_eq!(helped["resource"]["service.name"], "worker");
    assert_below_caller(&spans, helped);
    let called = spans.all(|span| span["name"] == "tools/call");
    assert_eq!(called.len(), 1, "{:#?}", spans.0);
    assert_eq!(called[0]["resource"]["service.name"], "worker");
    assert_eq!(called[0]["attributes"]["standfast.channel"], "mcp");
    assert_below_caller(&spans, called[0]);
}

/// A message of A2A names its trace in its metadata where its transport does not; sub-runs are part of the trace of the run that
/// asked for them.
#[tokio::test]
async fn a_message_names_its_trace_and_sub_runs_belong_to_it() {
    let collector = Collector::start("http");
    let rest = "tools:\n  helper: {type: agent, agent: helper, requires_approval: false}\n\
         agents: {boss: {llm: hands, tools: [helper]}, helper: {llm: says}}\n";
    let hands =
        "replies:\n- calls:\n  - tool: helper\n    arguments: '{\"message\": \"help\"}'\n- text: done\n";
    let scripts = [("hands", hands), ("says", "replies:\n- text: done\n")];
    let (server, _folder) = serve(&collector, "one", &scripts, rest);
    let message = json!({"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "please"}],
        "metadata": {"traceparent": CALLER}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
    let headers = [("a2a-version", "1.0")];
    let answer = Http::new(&server.base).send("POST", "/v1/agents/boss", &headers, &body.to_string()).await;
    let task = &answer.body["result"]["task"];
    server.run_once(text(&task["id"]), "completed");
    stop(server);
    let spans = collector.spans();
    let named = spans.one(|span| span["name"] == "message/send");
    assert_eq!(
        named["links"].as_array().unwrap().len(),
        1,
        "the request that carried it is linked: {named:#}"
    );
    for drive in spans.all(|span| span["name"].as_str().unwrap().starts_with("invoke_agent")) {
        assert_below_caller(&spans, drive);
    }
    assert!(spans.has("invoke_agent helper") && spans.has("invoke_agent boss"), "{:#?}", spans.0);
}

/// The provider of a model is told the span of the request, which says what the conventions want of it.
#[tokio::test]
async fn a_provider_is_told_the_span_and_its_answer_is_measured() {
    let collector = Collector::start("http");
    let fake = Fake::answering(vec![Answer::stream(SAYS)]);
    let rest = format!(
        "  real: {{type: openai, model: gpt-test, base_url: '{}', api_key: canary-key}}\nagents: {{ops: {{llm: real}}}}\n",
        fake.url
    );
    let (server, _folder) = serve(&collector, "one", &[], &rest);
    run(&server, "ops").await;
    stop(server);
    let spans = collector.spans();
    let chat = spans.one(|span| span["name"] == "chat gpt-test");
    let head = fake.request().unwrap().head.to_ascii_lowercase();
    let told = format!("traceparent: 00-{}-{}-01", text(&chat["trace"]), text(&chat["span"]));
    assert!(head.contains(&told), "{told}: {head}");
    assert_eq!(chat["kind"], "SPAN_KIND_CLIENT");
    assert_eq!(chat["attributes"]["gen_ai.provider.name"], "openai");
    assert_eq!(chat["attributes"]["gen_ai.request.model"], "gpt-test");
    assert_eq!(chat["attributes"]["gen_ai.response.finish_reasons"], json!(["stop"]));
    assert!(!collector.text().contains("canary"), "{}", collector.text());
}
