//! How a call that waits for a person is shown to an MCP client: by the best rung that it supports. Pure; for the gateway and for
//! the proxy of the command line.
//!
//! None of the rungs decides anything: what a client accepts or fills in only says whether somebody goes on waiting. Decisions are
//! made where people decide, about exactly the arguments of the call.

use serde_json::{Value, json};
use standfast_core::time::Millis;

use super::message::CallRequest;
use super::profile::ClientProfile;

/// What ids of requests begin with that are ours and not the server's.
pub const OUR_ID: &str = "standfast-ask-";

/// What tasks are called that are ours and not the server's.
pub const OUR_TASK: &str = "standfast-";

/// What a state begins with that says only how often a client came back.
const ROUND: &str = "standfast-round-";

/// The question that a client without sessions is asked.
const QUESTION: &str = "standfast";

/// How often such a client is asked to come back: libraries give up after ten rounds.
const ROUNDS: u32 = 8;

/// How often a client that follows progress hears that a call waits.
pub const STRETCH: Millis = Millis::seconds(10);

/// How long somebody waits who does not follow progress, and who does.
const BUDGETS: [Millis; 2] = [Millis::seconds(45), Millis::seconds(240)];

/// How long clients wait whose own clock is slow: Claude Code with a program, Codex while its user is asked something.
const LONG_BUDGET: Millis = Millis::seconds(1500);

/// The rungs, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// The client gets a task, and asks for its result.
    Task,
    /// The client is asked to bring its user to an address, or to show a text, and comes back with the same call.
    ComeBack,
    /// The client's user is asked to open an address while the request waits.
    Address,
    /// The client's user is shown a text while the request waits.
    Form,
    /// The request waits, and the client hears of it.
    Progress,
    /// The request waits for a while; then the model is told how to go on.
    Answer,
}

/// How a client is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// As a program that it started.
    Program,
    /// Over the network.
    Network,
}

/// The best rung for a call of this client. `tasks` says whether whoever asks can keep tasks.
#[must_use]
pub fn rung(client: &ClientProfile, call: &CallRequest, tasks: bool) -> Rung {
    let asks = client.opens_addresses || client.asks_user;
    if client.is_sessionless() {
        return match call.progress {
            _ if client.follows_tasks && tasks => Rung::Task,
            _ if asks && round(call) < ROUNDS && !gave_up(call) => Rung::ComeBack,
            Some(_) => Rung::Progress,
            None => Rung::Answer,
        };
    }
    match call.progress {
        _ if client.opens_addresses => Rung::Address,
        _ if client.asks_user => Rung::Form,
        Some(_) => Rung::Progress,
        None => Rung::Answer,
    }
}

/// How long a call may wait.
#[must_use]
pub fn budget(client: &ClientProfile, call: &CallRequest, rung: Rung, reach: Reach) -> Millis {
    let [plain, with_progress] = BUDGETS;
    let is_asked = matches!(rung, Rung::Address | Rung::Form);
    match (client.name.as_str(), &call.progress) {
        // Its user does not want to wait.
        (_, _) if gave_up(call) => Millis(0),
        ("claude-code", _) if reach == Reach::Program => LONG_BUDGET,
        ("codex-mcp-client", _) if is_asked => LONG_BUDGET,
        // Whoever has not been asked yet is asked at once.
        (_, _) if rung == Rung::ComeBack && round(call) == 0 => Millis(0),
        (_, Some(_)) => with_progress,
        (_, None) => plain,
    }
}

/// How often a client has come back with this call.
fn round(call: &CallRequest) -> u32 {
    let state = call.request_state.as_deref().and_then(|state| state.strip_prefix(ROUND));
    state.and_then(|round| round.parse().ok()).unwrap_or(0)
}

/// Whether a call is a client coming back that was asked to by us.
#[must_use]
pub fn is_return(call: &CallRequest) -> bool {
    call.request_state.as_deref().is_some_and(|state| state.starts_with(ROUND))
}

/// Whether the client's user does not want to wait.
#[must_use]
pub fn gave_up(call: &CallRequest) -> bool {
    let answer = call.input_responses.get(QUESTION);
    let answer = answer.and_then(|answer| serde_json::from_str::<Value>(answer.get()).ok());
    is_return(call) && answer.as_ref().is_some_and(is_refusal)
}

/// Whether an answer to a question of ours says that nobody wants to wait.
#[must_use]
pub fn is_refusal(answer: &Value) -> bool {
    matches!(answer["action"].as_str(), Some("decline" | "cancel"))
}

/// What a client's user is asked for.
#[derive(Debug, Clone, Copy)]
pub enum WaitReason<'a> {
    /// To decide about a call of this tool.
    Approval(&'a str),
    /// To log in at the server of this name.
    Login(&'a str),
}

impl WaitReason<'_> {
    fn waits(self) -> String {
        match self {
            WaitReason::Approval(tool) => format!("{tool} waits for approval"),
            WaitReason::Login(server) => format!("The MCP server `{server}` requires a login"),
        }
    }

    fn page(self) -> &'static str {
        match self {
            WaitReason::Approval(_) => "Open the page to see it and decide.",
            WaitReason::Login(_) => "Open the page to log in; the call goes on by itself.",
        }
    }
}

/// What a client's user is shown.
fn question(client: &ClientProfile, asked: WaitReason<'_>, url: Option<&str>, id: Option<&str>) -> Value {
    match url {
        Some(url) if client.opens_addresses => {
            let message = format!("{}. {}", asked.waits(), asked.page());
            let mut params = json!({"mode": "url", "message": message, "url": url});
            // Versions without sessions have no other word of it.
            if let Some(id) = id {
                params["elicitationId"] = id.into();
            }
            params
        }
        url => {
            let at = url.map(|url| format!(" at {url}")).unwrap_or_default();
            let message = format!("{}{at}. Accept to go on waiting.", asked.waits());
            let schema = json!({"type": "object", "properties": {}});
            let mut params = json!({"message": message, "requestedSchema": schema});
            if client.is_sessionless() || client.opens_addresses {
                params["mode"] = "form".into();
            }
            params
        }
    }
}

/// The answer that asks a client without sessions to come back with the same call.
#[must_use]
pub fn come_back(call: &CallRequest, client: &ClientProfile, url: Option<&str>) -> String {
    let params = question(client, WaitReason::Approval(&call.tool), url, None);
    let result = json!({
        "resultType": "input_required",
        "inputRequests": {QUESTION: {"method": "elicitation/create", "params": params}},
        "requestState": format!("{ROUND}{}", round(call) + 1),
    });
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, call.id)
}

/// The request that asks a client's user while a call waits, under this id.
#[must_use]
pub fn elicitation(id: &str, asked: &WaitReason<'_>, client: &ClientProfile, url: Option<&str>) -> String {
    let params = question(client, *asked, url, Some(id));
    json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params}).to_string()
}

/// What a client hears when a call does not wait any more whose user was asked: that the page did its work, and that nobody has to
/// answer any more.
#[must_use]
pub fn elicitation_ends(id: &str, client: &ClientProfile, is_decided: bool, is_open: bool) -> Vec<String> {
    let told = |method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
    };
    let mut ends = Vec::new();
    if is_decided && client.opens_addresses {
        ends.push(told("notifications/elicitation/complete", json!({"elicitationId": id})));
    }
    if is_open {
        let reason = "the call does not wait any more";
        ends.push(told("notifications/cancelled", json!({"requestId": id, "reason": reason})));
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::super::message::ClientMessage;
    use super::*;

    fn call(more: &str) -> CallRequest {
        let line = format!(r#"{{"id":1,"method":"tools/call","params":{{"name":"pay"{more}}}}}"#);
        match ClientMessage::read(&line) {
            Ok(ClientMessage::Call(call)) => *call,
            other => panic!("{other:?}"),
        }
    }

    fn client(version: &str, capabilities: Value) -> ClientProfile {
        ClientProfile::of_hello(&json!({"protocolVersion": version, "capabilities": capabilities}))
    }

    #[test]
    fn the_best_rung_counts() {
        let (plain, token) = (call(""), call(r#","_meta":{"progressToken":1}"#));
        let all = json!({"elicitation": {"url": {}, "form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
        let new = client("2026-07-28", all.clone());
        assert_eq!(rung(&new, &plain, true), Rung::Task);
        assert_eq!(rung(&new, &plain, false), Rung::ComeBack);
        assert_eq!(rung(&client("2025-11-25", all), &token, true), Rung::Address);
        let form = client("2025-06-18", json!({"elicitation": {}}));
        assert_eq!(rung(&form, &token, true), Rung::Form);
        let nothing = client("2025-06-18", json!({}));
        assert_eq!(rung(&nothing, &token, true), Rung::Progress);
        assert_eq!(rung(&nothing, &plain, true), Rung::Answer);
    }

    #[test]
    fn a_client_comes_back_and_not_for_ever() {
        let new = client("2026-07-28", json!({"elicitation": {"url": {}}}));
        let first = call("");
        assert_eq!(budget(&new, &first, Rung::ComeBack, Reach::Network), Millis(0));
        let asked: Value =
            serde_json::from_str(&come_back(&first, &new, Some("http://x/approve/1"))).unwrap();
        let state = asked["result"]["requestState"].as_str().unwrap().to_owned();
        assert_eq!(asked["result"]["inputRequests"]["standfast"]["params"]["url"], "http://x/approve/1");
        let again = call(&format!(
            r#","requestState":"{state}","inputResponses":{{"standfast":{{"action":"accept"}}}}"#
        ));
        assert!(is_return(&again) && !gave_up(&again));
        assert_eq!(rung(&new, &again, false), Rung::ComeBack);
        assert!(budget(&new, &again, Rung::ComeBack, Reach::Network) > Millis(0));
        let declined = call(&format!(
            r#","requestState":"{state}","inputResponses":{{"standfast":{{"action":"decline"}}}}"#
        ));
        assert_eq!(rung(&new, &declined, false), Rung::Answer);
        let last = call(r#","requestState":"standfast-round-8""#);
        assert_eq!(rung(&new, &last, false), Rung::Answer);
        assert!(!is_return(&call(r#","requestState":"theirs""#)));
    }

    #[test]
    fn a_user_is_asked_to_open_an_address_or_shown_it() {
        let asks = |client: &ClientProfile| {
            let asked = WaitReason::Approval("pay");
            let line = elicitation("standfast-ask-1", &asked, client, Some("http://x/approve/1"));
            serde_json::from_str::<Value>(&line).unwrap()["params"].clone()
        };
        let opens = asks(&client("2025-11-25", json!({"elicitation": {"url": {}}})));
        assert_eq!((&opens["mode"], &opens["elicitationId"]), (&json!("url"), &json!("standfast-ask-1")));
        let shows = asks(&client("2025-06-18", json!({"elicitation": {}})));
        assert!(
            shows["message"].as_str().unwrap().contains("http://x/approve/1") && shows.get("mode").is_none()
        );
    }
}
