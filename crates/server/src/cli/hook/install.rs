//! The hook in the settings of coding agents: what is added, what is removed, and the difference that people see first.
//!
//! Files keep the order and the text of everything that is not ours. What is ours is known by its command.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{ClientName, ThenWord};

/// What every hook of ours begins with.
const OURS: &str = "standfast hook --client ";

/// How long clients let the hook wait, in seconds; the hook itself answers sooner.
const LIMIT: u64 = 86_400;
const WAIT: u64 = 86_000;

/// The same for a hook that only tells something, while nobody wants to wait for it.
const SHORT_LIMIT: u64 = 15;

/// Which client, and where.
#[derive(Debug, Args)]
pub(super) struct Install {
    /// The coding agent.
    client: ClientName,
    /// The project whose settings are changed. Default: the current directory.
    #[arg(long, value_name = "DIR", default_value = ".")]
    project: PathBuf,
    /// Show what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// What Claude Code does with a call that nobody has decided yet: wait for that in the hook (`deny` when it takes longer than a
    /// day), `ask` in its own dialog beside the page, or `defer` it in -p until it is resumed.
    #[arg(long, default_value = "deny")]
    then: ThenWord,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Install,
    Uninstall,
}

impl Install {
    pub(super) fn run(&self, change: Change) -> ExitCode {
        match self.apply(change) {
            Ok(said) => {
                print!("{said}");
                ExitCode::SUCCESS
            }
            Err(why) => {
                eprintln!("standfast: {why}");
                ExitCode::from(2)
            }
        }
    }

    fn apply(&self, change: Change) -> Result<String, String> {
        let file = self.project.join(place(self.client));
        let shown = file.display();
        let before = match std::fs::read_to_string(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(format!("{shown} cannot be read: {error}")),
        };
        if self.then != ThenWord::Deny && self.client != ClientName::ClaudeCode {
            return Err(format!("--then is for claude-code; {} has one answer", self.client.name()));
        }
        let after = changed((self.client, self.then), change, before.as_deref())
            .map_err(|why| format!("{shown} was not changed: {why}"))?;
        if before == after {
            return Ok(format!("{shown}: nothing to change\n"));
        }
        let difference = difference(before.as_deref().unwrap_or(""), after.as_deref().unwrap_or(""));
        print!("{shown}\n{difference}");
        if self.dry_run {
            return Ok("nothing was changed (--dry-run)\n".to_owned());
        }
        if !self.yes && !confirmed()? {
            return Ok("nothing was changed\n".to_owned());
        }
        write(&file, after.as_deref()).map_err(|error| format!("{shown} cannot be written: {error}"))?;
        let more = match (change, self.client) {
            (Change::Install, ClientName::Codex) => {
                "Codex runs hooks only when they are trusted: look at /hooks there.\n"
            }
            (Change::Install, _) => "Name the server and the key for it: STANDFAST_SERVER, STANDFAST_KEY.\n",
            (Change::Uninstall, _) => "",
        };
        Ok(format!("{shown} was changed\n{more}"))
    }
}

fn confirmed() -> Result<bool, String> {
    if !std::io::stdin().is_terminal() {
        return Err("nobody can be asked here; say --yes, or look with --dry-run".to_owned());
    }
    print!("Write it? [y/N] ");
    let _ = std::io::stdout().flush();
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| error.to_string())?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

fn write(file: &Path, text: Option<&str>) -> std::io::Result<()> {
    match text {
        None => std::fs::remove_file(file),
        Some(text) => {
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder)?;
            }
            // In one step, so that nobody reads half a file.
            let beside = file.with_extension("standfast-new");
            std::fs::write(&beside, text)?;
            std::fs::rename(&beside, file)
        }
    }
}

/// Where a client keeps the settings of a project.
fn place(client: ClientName) -> &'static str {
    match client {
        ClientName::ClaudeCode => ".claude/settings.json",
        ClientName::Codex => ".codex/hooks.json",
        ClientName::Copilot => ".github/hooks/standfast.json",
        ClientName::Gemini => ".gemini/settings.json",
        ClientName::Cursor => ".cursor/hooks.json",
        ClientName::Opencode => ".opencode/plugin/standfast.js",
    }
}

/// The hooks of a client, each with what is added to its list.
fn entries(client: ClientName, then: ThenWord) -> Vec<(&'static str, String)> {
    let command = format!("{OURS}{} --wait {WAIT}", client.name());
    let quoted = serde_json::Value::from(command).to_string();
    let claude = |more: &str| {
        format!(
            r#"{{"matcher": "*", "hooks": [{{"type": "command", "command": {quoted}, "timeout": {LIMIT}{more}}}]}}"#
        )
    };
    match client {
        ClientName::ClaudeCode => claude_code(then),
        ClientName::Codex => vec![("PreToolUse", claude("")), ("PostToolUse", claude(""))],
        ClientName::Gemini => {
            let entry = format!(
                r#"{{"matcher": "*", "hooks": [{{"name": "standfast", "type": "command", "command": {quoted}, "timeout": {}}}]}}"#,
                LIMIT * 1000
            );
            vec![("BeforeTool", entry.clone()), ("AfterTool", entry)]
        }
        ClientName::Copilot => {
            let entry = format!(r#"{{"type": "command", "bash": {quoted}, "timeoutSec": {LIMIT}}}"#);
            vec![("preToolUse", entry.clone()), ("postToolUse", entry)]
        }
        ClientName::Cursor => {
            let entry = format!(r#"{{"command": {quoted}}}"#);
            let calls =
                ["beforeShellExecution", "beforeMCPExecution", "afterShellExecution", "afterMCPExecution"];
            // It asks its own user when nobody has decided in time.
            let afterwards = ["beforeSubmitPrompt", "stop", "sessionEnd"];
            calls.into_iter().chain(afterwards).map(|hook| (hook, entry.clone())).collect()
        }
        ClientName::Opencode => Vec::new(),
    }
}

/// The hooks of Claude Code. Where it asks its own user too, its dialog stands beside the page: the hook of the dialog waits for the
/// page, and what comes after the dialog says that it is gone.
fn claude_code(then: ThenWord) -> Vec<(&'static str, String)> {
    let hook = |wait: u64, limit: u64, more: &str| {
        let then = if then == ThenWord::Deny { String::new() } else { format!(" --then {}", then.word()) };
        let command = format!("{OURS}claude-code --wait {wait}{then}");
        let quoted = serde_json::Value::from(command).to_string();
        format!(
            r#"{{"matcher": "*", "hooks": [{{"type": "command", "command": {quoted}, "timeout": {limit}{more}}}]}}"#
        )
    };
    let wait = if then == ThenWord::Deny { WAIT } else { 0 };
    let mut hooks = vec![("PreToolUse", hook(wait, LIMIT, r#", "onFailure": "block""#))];
    let outcomes = ["PostToolUse", "PostToolUseFailure", "PermissionDenied"];
    hooks.extend(outcomes.map(|event| (event, hook(wait, LIMIT, ""))));
    if then == ThenWord::Ask {
        hooks.push(("PermissionRequest", hook(WAIT, LIMIT, "")));
        let afterwards =
            ["PostToolBatch", "UserPromptSubmit", "Stop", "StopFailure", "SubagentStop", "SessionEnd"];
        hooks.extend(afterwards.map(|event| (event, hook(0, SHORT_LIMIT, ""))));
    }
    hooks
}

/// The file after the change; none when it is to be removed.
fn changed(
    (client, then): (ClientName, ThenWord),
    change: Change,
    before: Option<&str>,
) -> Result<Option<String>, String> {
    if client == ClientName::Opencode {
        return match (change, before) {
            (Change::Install, Some(text)) if !text.contains(OURS) => {
                Err("another plugin has this name".to_owned())
            }
            (Change::Install, _) => Ok(Some(PLUGIN.to_owned())),
            (Change::Uninstall, Some(text)) if text.contains(OURS) => Ok(None),
            (Change::Uninstall, other) => Ok(other.map(str::to_owned)),
        };
    }
    let Some(text) = before.filter(|text| !text.trim().is_empty()) else {
        return Ok(match change {
            Change::Install => Some(installed((client, then), Members::default())?),
            Change::Uninstall => before.map(str::to_owned),
        });
    };
    let members: Members =
        serde_json::from_str(text).map_err(|error| format!("it is not a JSON object: {error}"))?;
    if change == Change::Uninstall && !text.contains(OURS) {
        return Ok(Some(text.to_owned()));
    }
    let cleaned = without_ours(members)?;
    match change {
        Change::Install => installed((client, then), cleaned).map(Some),
        Change::Uninstall if cleaned.0.iter().all(|(name, _)| name == "version") => Ok(None),
        Change::Uninstall => Ok(Some(cleaned.text(0))),
    }
}

fn installed((client, then): (ClientName, ThenWord), mut settings: Members) -> Result<String, String> {
    let has_version = matches!(client, ClientName::Copilot | ClientName::Cursor);
    if has_version && settings.get("version").is_none() {
        settings.0.insert(0, ("version".to_owned(), raw("1".to_owned())?));
    }
    let mut hooks = settings.hooks()?;
    for (hook, entry) in entries(client, then) {
        let mut list = hooks.list(hook)?;
        list.push(raw(entry)?);
        hooks.set(hook, raw(listed(&list))?);
    }
    settings.set("hooks", raw(hooks.text(1))?);
    Ok(settings.text(0))
}

/// Settings without what is ours; what it leaves empty goes too.
fn without_ours(mut settings: Members) -> Result<Members, String> {
    let mut hooks = settings.hooks()?;
    let names: BTreeSet<String> = hooks.0.iter().map(|(name, _)| name.clone()).collect();
    for name in names {
        let list = hooks.list(&name)?;
        let kept: Vec<Box<RawValue>> =
            list.iter().filter(|entry| !entry.get().contains(OURS)).cloned().collect();
        if kept.len() == list.len() {
            continue;
        }
        if kept.is_empty() {
            hooks.0.retain(|(known, _)| *known != name);
        } else {
            hooks.set(&name, raw(listed(&kept))?);
        }
    }
    if hooks.0.is_empty() {
        settings.0.retain(|(name, _)| name != "hooks");
    } else {
        settings.set("hooks", raw(hooks.text(1))?);
    }
    Ok(settings)
}

fn listed(entries: &[Box<RawValue>]) -> String {
    let entries: Vec<String> = entries.iter().map(|entry| format!("      {}", entry.get())).collect();
    format!("[\n{}\n    ]", entries.join(",\n"))
}

fn raw(text: String) -> Result<Box<RawValue>, String> {
    RawValue::from_string(text).map_err(|error| error.to_string())
}

/// The members of an object, in their order, each as it was written.
#[derive(Debug, Clone, Default)]
struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    fn set(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    fn hooks(&self) -> Result<Members, String> {
        match self.get("hooks") {
            None => Ok(Members::default()),
            Some(hooks) => {
                serde_json::from_str(hooks.get()).map_err(|_| "its `hooks` is not an object".to_owned())
            }
        }
    }

    fn list(&self, name: &str) -> Result<Vec<Box<RawValue>>, String> {
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(list) => {
                serde_json::from_str(list.get()).map_err(|_| format!("its `hooks.{name}` is not a list"))
            }
        }
    }

    fn text(&self, depth: usize) -> String {
        let (outer, inner) = ("  ".repeat(depth), "  ".repeat(depth + 1));
        let members: Vec<String> = self
            .0
            .iter()
            .map(|(name, value)| {
                format!("{inner}{}: {}", serde_json::Value::from(name.as_str()), value.get())
            })
            .collect();
        let end = if depth == 0 { "\n" } else { "" };
        format!("{{\n{}\n{outer}}}{end}", members.join(",\n"))
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Members, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(InOrder)
    }
}

/// What changes, line by line: lines that stay around it are left out.
fn difference(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same_first = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - same_first;
    let same_last = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let gone = old.get(same_first..old.len() - same_last).unwrap_or_default();
    let come = new.get(same_first..new.len() - same_last).unwrap_or_default();
    let gone = gone.iter().map(|line| format!("- {line}\n"));
    gone.chain(come.iter().map(|line| format!("+ {line}\n"))).collect()
}

/// The plugin for opencode: it throws where the answer is no, so that the call does not run. It waits without blocking opencode, which
/// draws, answers and can be interrupted meanwhile.
const PLUGIN: &str = r#"// Asks Standfast before a tool runs, and tells it what came of it: standfast hook --client opencode
import { spawn } from "node:child_process"

// The hooks that wait for a decision, each with its session.
const waiting = new Map()

const giveUp = (session) => {
  for (const [hook, itsSession] of waiting) if (session === undefined || session === itsSession) hook.kill()
}
process.on("exit", () => giveUp())

const ask = (event) => new Promise((resolve, reject) => {
  const hook = spawn("standfast", ["hook", "--client", "opencode", "--wait", "86000"])
  if (event.event === "tool.execute.before") waiting.set(hook, event.sessionID)
  let said = ""
  let problems = ""
  hook.stdout.on("data", (text) => { said += text })
  hook.stderr.on("data", (text) => { problems += text })
  hook.stdin.on("error", () => {})
  hook.on("error", reject)
  hook.on("close", (status) => {
    waiting.delete(hook)
    try {
      if (status !== 0) throw new Error(problems.trim() || "Standfast could not be asked: its hook was ended")
      resolve(JSON.parse(said.trim() || "{}"))
    } catch (error) {
      reject(error)
    }
  })
  hook.stdin.end(JSON.stringify(event))
})

export const Standfast = async () => ({
  // Nobody waits for a call of a session that was interrupted: it does not run, and the request stays open.
  event: async ({ event }) => {
    const ended = event.type === "session.idle" || event.type === "session.error"
    if (ended && event.properties?.sessionID) giveUp(event.properties.sessionID)
  },
  "tool.execute.before": async (input, output) => {
    const said = await ask({
      event: "tool.execute.before", sessionID: input.sessionID, callID: input.callID, tool: input.tool, args: output.args,
    })
    if (said.decision === "deny") throw new Error(said.reason)
    if (said.args) {
      // opencode runs the object that it handed over, not another one in its place.
      for (const name of Object.keys(output.args)) delete output.args[name]
      Object.assign(output.args, said.args)
    }
  },
  "tool.execute.after": async (input, output) => {
    await ask({
      event: "tool.execute.after", sessionID: input.sessionID, callID: input.callID, tool: input.tool, args: input.args ?? {},
      output: output.output ?? "",
    })
  },
})
"#;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ClientName; 6] = [
        ClientName::ClaudeCode,
        ClientName::Codex,
        ClientName::Copilot,
        ClientName::Gemini,
        ClientName::Cursor,
        ClientName::Opencode,
    ];

    /// What was there stays, in its order and with its own text; installing twice is installing once; uninstalling leaves what
    /// was there before.
    #[test]
    fn installing_and_uninstalling_leave_everything_else_alone() {
        for client in ALL.into_iter().filter(|client| *client != ClientName::Opencode) {
            let own = "{\n  \"zeta\": 1.10,\n  \"hooks\": {\n    \"Mine\": [{\"command\": \"x\"}]\n  },\n  \"alpha\": { \"b\":2 }\n}\n";
            let own = if matches!(client, ClientName::Copilot | ClientName::Cursor) {
                own.replacen('{', "{\n  \"version\": 1,", 1)
            } else {
                own.to_owned()
            };
            let change = |change, before: &str| changed((client, ThenWord::Deny), change, Some(before));
            let installed = change(Change::Install, &own).unwrap().unwrap();
            for kept in ["\"zeta\": 1.10", "{ \"b\":2 }", "[{\"command\": \"x\"}]", OURS] {
                assert!(installed.contains(kept), "{client:?}: {kept}: {installed}");
            }
            assert!(installed.find("zeta") < installed.find("alpha"), "{installed}");
            serde_json::from_str::<serde_json::Value>(&installed).unwrap();
            let again = change(Change::Install, &installed).unwrap().unwrap();
            assert_eq!(again, installed, "{client:?}");
            let gone = change(Change::Uninstall, &installed).unwrap().unwrap();
            let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(value(&gone), value(&own), "{client:?}");
        }
        for client in ALL {
            let change = |change, before| changed((client, ThenWord::Deny), change, before);
            let fresh = change(Change::Install, None).unwrap().unwrap();
            assert!(fresh.contains(client.name()), "{fresh}");
            assert_eq!(change(Change::Uninstall, Some(&fresh)).unwrap(), None, "{client:?}");
            assert_eq!(change(Change::Uninstall, None).unwrap(), None);
        }
    }

    /// Where Claude Code asks its own user too, it does so at once, its dialog waits for the page, and what comes after the dialog is told;
    /// changing one's mind leaves nothing of that.
    #[test]
    fn a_dialog_beside_the_page_has_the_hooks_that_tell_its_end() {
        let change = |then, before: Option<&str>| {
            changed((ClientName::ClaudeCode, then), Change::Install, before).unwrap().unwrap()
        };
        let asking = change(ThenWord::Ask, None);
        let settings: serde_json::Value = serde_json::from_str(&asking).unwrap();
        let hook = |event: &str| settings["hooks"][event][0]["hooks"][0].clone();
        for (event, command) in [
            ("PreToolUse", "--wait 0 --then ask"),
            ("PermissionRequest", "--wait 86000 --then ask"),
            ("UserPromptSubmit", "--wait 0 --then ask"),
            ("SessionEnd", "--wait 0 --then ask"),
        ] {
            assert_eq!(hook(event)["command"], format!("{OURS}claude-code {command}"), "{event}");
        }
        assert_eq!(hook("PreToolUse")["onFailure"], "block");
        let usual = change(ThenWord::Deny, Some(&asking));
        assert_eq!(usual, change(ThenWord::Deny, None));
        assert!(!usual.contains("PermissionRequest"), "{usual}");
        assert!(change(ThenWord::Defer, None).contains("--wait 0 --then defer"));
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        for (text, why) in
            [("[1]", "not a JSON object"), ("{", "not a JSON object"), (r#"{"hooks": 1}"#, "`hooks`")]
        {
            let refused =
                changed((ClientName::ClaudeCode, ThenWord::Deny), Change::Install, Some(text)).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
        let list = r#"{"hooks": {"PreToolUse": {}}}"#;
        assert!(
            changed((ClientName::Codex, ThenWord::Deny), Change::Install, Some(list))
                .unwrap_err()
                .contains("`hooks.PreToolUse`")
        );
        assert!(changed((ClientName::Opencode, ThenWord::Deny), Change::Install, Some("mine")).is_err());
    }
}
