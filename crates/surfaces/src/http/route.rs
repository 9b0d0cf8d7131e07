//! The route of a request for its trace: its path with everything cut out that is not a word of our own routes.
//!
//! A path can have secrets in it (approval links) and ids without end; whatever is not listed here is neither told nor counted.
//! The router knows the route as well, and would note it for each request whether somebody wants it or not.

/// What stands for a part that differs from request to request.
const ANY: &str = "{id}";

/// The words of routes, in order.
const WORDS: &[&str] = &[
    ".well-known",
    "CancelTask",
    "CreateTaskPushNotificationConfig",
    "DeleteTaskPushNotificationConfig",
    "GetAgentCard",
    "GetExtendedAgentCard",
    "GetTask",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "ListTasks",
    "SendMessage",
    "SendStreamingMessage",
    "SubscribeToTask",
    "TaskSubscription",
    "a2a.v1.A2AService",
    "account",
    "agent-card.json",
    "agent.json",
    "agents",
    "api",
    "approve",
    "assets",
    "assign",
    "async-tool",
    "async-tools",
    "batch",
    "callback",
    "calls",
    "cancel",
    "card",
    "charts",
    "chat",
    "claim",
    "complete",
    "dead-letters",
    "delegate",
    "disable",
    "discord",
    "edit",
    "enable",
    "error",
    "events",
    "extendedAgentCard",
    "fail",
    "gates",
    "grant",
    "grant-rule",
    "grants",
    "heartbeat",
    "history",
    "holds",
    "hooks",
    "inboxes",
    "jobs",
    "lf.a2a.v1.A2AService",
    "link",
    "login",
    "mcp",
    "me",
    "message:send",
    "message:stream",
    "messages",
    "nodes",
    "outcome",
    "pending",
    "pending_executions",
    "progress",
    "pushNotificationConfigs",
    "receipt",
    "recovery",
    "release",
    "reopen",
    "resend",
    "resolve",
    "result",
    "resume",
    "revoke",
    "rotate",
    "runs",
    "sessions",
    "sign-in",
    "sign-out",
    "slack",
    "sse",
    "start",
    "stats",
    "status",
    "subscribe",
    "subscriptions",
    "suspend",
    "take",
    "tasks",
    "tealagents",
    "test",
    "tools",
    "v1",
    "v1alpha1",
    "webhook",
    "withdraw",
];

/// The route of a path.
pub(super) fn of(path: &str) -> String {
    let is_word = |part: &str| WORDS.binary_search(&part).is_ok();
    let mut route = String::new();
    for part in path.split('/').skip(1) {
        route.push('/');
        match part.rsplit_once(':') {
            _ if part.is_empty() || is_word(part) => route.push_str(part),
            // An operation on one thing: `{id}:cancel`.
            Some((_, verb)) if is_word(verb) => route.extend([ANY, ":", verb]),
            Some(_) | None => route.push_str(ANY),
        }
    }
    route
}

/// Whether this is a method and a route, as `POST /api/v1/agents/{id}/runs`: the words of our own, and `{id}` for the rest.
#[must_use]
pub fn is_route(text: &str) -> bool {
    let known = |method: &str| ["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&method);
    let is_known = |(method, path): (&str, &str)| known(method) && path.starts_with('/') && of(path) == path;
    text.split_once(' ').is_some_and(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_of_routes_are_told() {
        assert!(WORDS.is_sorted(), "they are looked up");
        for (path, wanted) in [
            ("/", "/"),
            ("/api/v1/agents/ops/runs", "/api/v1/agents/{id}/runs"),
            ("/api/v1/holds/hold_1-abc/resolve", "/api/v1/holds/{id}/resolve"),
            ("/link/secret-token", "/link/{id}"),
            ("/v1/agents/ops/tasks/run_1:cancel", "/v1/agents/{id}/tasks/{id}:cancel"),
            ("/tasks/secret:word", "/tasks/{id}"),
        ] {
            assert_eq!(of(path), wanted);
        }
        assert!(is_route("POST /api/v1/agents/{id}/runs"));
        for text in
            ["", "/runs", "POST runs", "TAKE /runs", "POST /api/v1/agents/ops/runs", "GET /api/v1/rums"]
        {
            assert!(!is_route(text), "{text}");
        }
    }
}
