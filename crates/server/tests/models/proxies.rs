//! Proxies that the environment names, on the way from the real program to a provider.
//!
//! The proxy here only hears where it is to connect to; that it was asked, or not, is what counts.

use crate::KEY;
use standfast_testkit::provider::{Answer, Fake};

/// What `standfast llm check` says with these variables, for a provider at this address.
fn check(base_url: &str, variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "llms: {{the-llm: {{type: openai, model: m, api_key: \"${{OPENAI_API_KEY}}\", base_url: \"{base_url}\", timeout: 20s}}}}\n\
         agents: {{a: {{llm: the-llm}}}}\n"
    );
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    let mut command = standfast_testkit::standfast();
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.current_dir(folder.path()).env("OPENAI_API_KEY", KEY).envs(variables.iter().copied());
    let output = command.args(["llm", "check", "the-llm", "--config", "standfast.yaml"]).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn proxy() -> Fake {
    Fake::answering(vec![Answer::error("502 Bad Gateway", "", "no")])
}

/// A provider over https is asked through `HTTPS_PROXY`, whose password nobody is told.
#[test]
fn a_provider_is_asked_through_the_proxy() {
    let proxy = proxy();
    let address = proxy.url.replace("http://", "http://ann:canary@");
    let said = check("https://models.example.invalid/v1", &[("HTTPS_PROXY", &address)]);
    let head = proxy.request().unwrap().head;
    assert!(head.starts_with("CONNECT models.example.invalid:443"), "{head}");
    assert!(!said.contains("canary"), "{said}");
}

/// What `NO_PROXY` names is asked directly, and so is what runs on this machine.
#[test]
fn a_provider_that_is_excepted_is_asked_directly() {
    let proxy = proxy();
    let both = [("https_proxy", proxy.url.as_str()), ("no_proxy", "example.invalid")];
    check("https://models.example.invalid/v1", &both);
    let provider = Fake::answering(vec![Answer::error("401 Unauthorized", "", "no")]);
    check(&provider.url, &[("HTTP_PROXY", proxy.url.as_str()), ("ALL_PROXY", proxy.url.as_str())]);
    assert!(provider.request().is_some());
    assert!(proxy.requests().is_empty());
}

/// A variable that is not an address is a mistake that is reported, not a way around the proxy.
#[test]
fn a_proxy_that_is_none_is_refused() {
    let said = check("https://models.example.invalid/v1", &[("HTTPS_PROXY", "://ann:canary@")]);
    assert!(said.contains("HTTPS_PROXY is not a proxy URL") && !said.contains("canary"), "{said}");
}
