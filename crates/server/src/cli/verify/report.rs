//! What came of a verification, for people (a table), programs (JSON) and machines that build (JUnit).
//!
//! Knows nothing of how cases are played.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::case::{Finding, Verdict};
use super::rehearsal::StoreKind;
use crate::cli::plain::{plain, table};

/// What came of all agents.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) file: String,
    /// The store that was played on, and the one that the file names.
    pub(super) store: StoreKind,
    pub(super) named: StoreKind,
    pub(super) agents: Vec<AgentReport>,
}

/// What came of one agent.
#[derive(Debug)]
pub(super) struct AgentReport {
    pub(super) agent: String,
    /// What was played: a call, or why there is none.
    pub(super) played: Result<PlayedCall, String>,
    pub(super) findings: Vec<Finding>,
}

/// The call that was played.
#[derive(Debug)]
pub(super) struct PlayedCall {
    pub(super) tool: String,
    pub(super) arguments: String,
    pub(super) rules: Vec<String>,
}

/// How many came out how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) not_applicable: usize,
}

impl Report {
    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.agents.iter().flat_map(|agent| &agent.findings)
    }

    pub(super) fn totals(&self) -> Totals {
        let count = |verdict: Verdict| self.findings().filter(|finding| finding.verdict == verdict).count();
        Totals {
            passed: count(Verdict::Passed),
            failed: count(Verdict::Failed),
            not_applicable: count(Verdict::NotApplicable),
        }
    }

    /// What it was played on.
    fn stage(&self) -> String {
        match (self.store, self.named) {
            (StoreKind::Sqlite, StoreKind::Postgres) => {
                "SQLite, in place of the file's Postgres (--postgres URL plays on one)".to_owned()
            }
            (store, _) => store.as_str().to_owned(),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "{}: played on {}, a store of its own, with a scripted model and scripted people.\n\
             Its tools were not run: each start is a line in a file. This shows what the server does with the agents, rules,\n\
             approvers and timeouts of this file, not what the programs behind the tools do.\n",
            plain(&self.file),
            self.stage(),
        );
        for agent in &self.agents {
            let name = plain(&agent.agent);
            match &agent.played {
                Ok(PlayedCall { tool, arguments, rules }) => {
                    let _ = writeln!(
                        out,
                        "\nagent {name}: {} {}, held by {}",
                        plain(tool),
                        plain(arguments),
                        plain(&rules.join(", "))
                    );
                    out.push_str(&table(
                        &["CASE", "RESULT", "WHY"],
                        &agent.findings.iter().map(row).collect::<Vec<_>>(),
                    ));
                }
                Err(why) => {
                    let _ = writeln!(out, "\nagent {name}: not applicable: {}", plain(why));
                }
            }
        }
        let Totals { passed, failed, not_applicable } = self.totals();
        let _ = writeln!(out, "\n{passed} passed, {failed} failed, {not_applicable} not applicable");
        out
    }

    pub(super) fn json(&self) -> Value {
        let Totals { passed, failed, not_applicable } = self.totals();
        let agents: Vec<Value> = self.agents.iter().map(agent_body).collect();
        json!({
            "ok": failed == 0,
            "file": self.file,
            "store": self.store,
            "passed": passed,
            "failed": failed,
            "not_applicable": not_applicable,
            "agents": agents,
        })
    }

    /// As the machines that build read it.
    pub(super) fn junit(&self) -> String {
        let Totals { failed, not_applicable, .. } = self.totals();
        let (tests, time) = (self.findings().count(), seconds(self.findings()));
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let _ = writeln!(
            out,
            "<testsuites name=\"standfast verify\" tests=\"{tests}\" failures=\"{failed}\" errors=\"0\" skipped=\"{not_applicable}\" time=\"{time}\">"
        );
        for agent in &self.agents {
            let count = |verdict: Verdict| agent.findings.iter().filter(|one| one.verdict == verdict).count();
            let (failed, skipped) = (count(Verdict::Failed), count(Verdict::NotApplicable));
            let (name, file) = (xml(&agent.agent), xml(&self.file));
            let (tests, time) = (agent.findings.len(), seconds(agent.findings.iter()));
            let _ = writeln!(
                out,
                "  <testsuite name=\"{file}: {name}\" tests=\"{tests}\" failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\" time=\"{time}\">"
            );
            for finding in &agent.findings {
                let (case, why) = (finding.case.name(), xml(&finding.why));
                let time = seconds(std::iter::once(finding));
                let inside = match finding.verdict {
                    Verdict::Passed => format!("<system-out>{why}</system-out>"),
                    Verdict::Failed => format!("<failure message=\"{why}\"/>"),
                    Verdict::NotApplicable => format!("<skipped message=\"{why}\"/>"),
                };
                let _ = writeln!(
                    out,
                    "    <testcase classname=\"{name}\" name=\"{case}\" time=\"{time}\">{inside}</testcase>"
                );
            }
            out.push_str("  </testsuite>\n");
        }
        out.push_str("</testsuites>\n");
        out
    }
}

fn row(finding: &Finding) -> Vec<String> {
    vec![finding.case.name().to_owned(), finding.verdict.as_str().to_owned(), finding.why.clone()]
}

fn agent_body(agent: &AgentReport) -> Value {
    let cases = agent.findings.iter().map(|finding| {
        let Finding { case, verdict, why, millis } = finding;
        json!({ "case": case.name(), "result": verdict.as_str(), "why": why, "millis": millis })
    });
    let cases: Vec<Value> = cases.collect();
    match &agent.played {
        Ok(PlayedCall { tool, arguments, rules }) => json!({
            "agent": agent.agent,
            "call": { "tool": tool, "arguments_text": arguments, "held_by": rules },
            "cases": cases,
        }),
        Err(why) => json!({ "agent": agent.agent, "call": null, "why": why, "cases": cases }),
    }
}

fn seconds<'a>(findings: impl Iterator<Item = &'a Finding>) -> String {
    let millis: i64 = findings.map(|finding| finding.millis).sum();
    format!("{}.{:03}", millis / 1000, millis % 1000)
}

/// Text as XML writes it; what XML has no way to write is written as an escape.
fn xml(text: &str) -> String {
    let mut out = String::new();
    for c in plain(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::case::Case;
    use super::*;

    fn report(findings: Vec<Finding>) -> Report {
        let call =
            PlayedCall { tool: "pay".into(), arguments: r#"{"to":"a&b"}"#.into(), rules: vec!["r".into()] };
        let agent = AgentReport { agent: "ops".into(), played: Ok(call), findings };
        Report {
            file: "a<b>.yaml".into(),
            store: StoreKind::Sqlite,
            named: StoreKind::Postgres,
            agents: vec![agent],
        }
    }

    fn finding(case: Case, verdict: Verdict, why: &str) -> Finding {
        Finding { case, verdict, why: why.into(), millis: 1_234 }
    }

    #[test]
    fn junit_has_a_case_for_each_finding_and_escapes_what_it_must() {
        let report = report(vec![
            finding(Case::Denied, Verdict::Passed, "no start"),
            finding(Case::Expiry, Verdict::NotApplicable, "no \"timeout\""),
            finding(Case::StaleDigest, Verdict::Failed, "got <200> & more\u{1b}"),
        ]);
        let xml = report.junit();
        assert!(xml.contains(r#"tests="3" failures="1" errors="0" skipped="1" time="3.702""#), "{xml}");
        assert!(xml.contains(r#"<testsuite name="a&lt;b&gt;.yaml: ops""#), "{xml}");
        assert!(xml.contains(r#"<skipped message="no &quot;timeout&quot;"/>"#), "{xml}");
        assert!(xml.contains(r#"<failure message="got &lt;200&gt; &amp; more\u{1b}"/>"#), "{xml}");
        assert!(
            xml.contains(r#"<testcase classname="ops" name="denied" time="1.234"><system-out>no start"#),
            "{xml}"
        );
    }

    #[test]
    fn one_failure_fails_all() {
        let one = report(vec![finding(Case::Denied, Verdict::Failed, "the tool was started")]);
        assert_eq!(one.totals(), Totals { passed: 0, failed: 1, not_applicable: 0 });
        assert_eq!(one.json()["ok"], false);
        let text = one.text();
        assert!(text.contains("denied  failed  the tool was started"), "{text}");
        assert!(text.contains("in place of the file's Postgres"), "{text}");
    }
}
