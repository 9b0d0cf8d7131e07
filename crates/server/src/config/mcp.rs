//! The MCP servers that a file names: connected, asked what they offer, and each tool put under a name of its own.
//!
//! Fails closed: a server that cannot be reached, a tool that cannot be taken, and a name in `allow`, `deny` or
//! `overrides` that the server does not have are mistakes, told with their place. No tool is dropped silently.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use standfast_core::definition::ToolSpec;
use standfast_core::name::ToolName;
use standfast_engine::clock::duration;
use standfast_engine::tool::login::LoginDesk;
use standfast_engine::upstream::Gateway;
use standfast_tools::child::relay::RelayOrder;
use standfast_tools::mcp::login::{Desk, DeskOptions, OwnClient};
use standfast_tools::mcp::offer::{Offer, Terms};
use standfast_tools::mcp::passage::passage;
use standfast_tools::mcp::server::{McpServer, Transport, Trouble};
use standfast_tools::mcp::{McpLimits, McpTool};

use super::build::tools::{ToolFactory, guard};
use super::file::{CommonKeys, McpConnection, McpKeys, Sandbox, Secret, ToolKind};
use super::nearest::advice;
use super::path::Path;
use super::problem::{Problem, Problems};
use super::source::Spot;
use super::stores::absolute;
use super::{BuildError, Config, tree};
use standfast_engine::outbound::guard::UnnamedHosts;

/// What stands between the name of a server and that of its tool. Single underscores are common in both.
pub(super) const BETWEEN: &str = "__";

/// The longest name of a tool that every provider of models takes.
const NAME_BYTES: usize = 64;

/// How often it is said that a server has not answered yet.
const STILL_WAITING: Duration = Duration::from_secs(5);

/// How many processes the program of a server may have at a time.
const PROCESSES: u32 = 256;

/// A tool of an MCP server, ready to be given to agents.
#[derive(Clone)]
pub(super) struct OfferedTool {
    pub(super) name: ToolName,
    pub(super) spec: ToolSpec,
    pub(super) tool: Arc<McpTool>,
}

/// The tools of each server, by the name of its entry.
#[derive(Default)]
pub(super) struct McpTools {
    offered: BTreeMap<String, Vec<OfferedTool>>,
    /// Servers whose tools nobody knows before somebody logs in there.
    pub(super) awaited: BTreeMap<String, Arc<dyn LoginDesk>>,
}

impl McpTools {
    /// The tools of a server.
    pub(super) fn get(&self, name: &str) -> Option<&Vec<OfferedTool>> {
        self.offered.get(name)
    }
}

/// The result of asking a server.
enum McpAnswer {
    Tools(Vec<OfferedTool>),
    Awaited(Arc<Desk>),
}

/// The entry of a server below `tools`.
#[derive(Clone, Copy)]
struct Entry<'a> {
    common: &'a CommonKeys,
    keys: &'a McpKeys,
}

/// A mistake, below this path.
struct McpMistake {
    path: Path,
    what: String,
    help: String,
}

impl Config {
    /// Connects to every server that an agent has tools of.
    pub(super) async fn mcp_tools(&self, workshop: &ToolFactory<'_>) -> Result<McpTools, BuildError> {
        let used = self.agents.iter().flat_map(|plan| &plan.tools);
        let names: BTreeSet<&str> = used.map(|tool| tool.name.as_str()).collect();
        let entries = names.into_iter().filter_map(|name| {
            let tool = self.file.tools.get(name)?;
            match &tool.kind {
                Some(ToolKind::Mcp(keys)) => Some((name, Entry { common: &tool.common, keys })),
                Some(_) | None => None,
            }
        });
        let all = entries
            .map(async |(name, tool)| (name, reported(name, self.server_tools(name, tool, workshop)).await));
        let all = join_all(all);
        let (mut tools, mut wrong) = (McpTools::default(), Vec::new());
        for (name, found) in all.await {
            match found {
                Ok(McpAnswer::Tools(found)) => {
                    tools.offered.insert(name.to_owned(), found);
                }
                Ok(McpAnswer::Awaited(desk)) => {
                    tracing::warn!(
                        server = name,
                        "mcp: the server requires a login before it lists its tools; runs that use it wait for the login"
                    );
                    tools.awaited.insert(name.to_owned(), desk);
                }
                Err(more) => wrong.extend(more),
            }
        }
        if wrong.is_empty() {
            return Ok(tools);
        }
        let tree = tree::parse(&self.source.text).ok().map(|(tree, _)| tree);
        let placed = wrong.into_iter().map(|McpMistake { path, what, help }| {
            let at = tree.as_ref().map_or(Spot::START, |tree| tree.spot(&path));
            Problem { at, path, what, help }
        });
        let (source, problems) = (self.source.clone(), placed.collect());
        Err(BuildError::Mcp(Box::new(Problems { source, problems, notices: Vec::new() })))
    }

    async fn server_tools(
        &self,
        name: &str,
        tool: Entry<'_>,
        workshop: &ToolFactory<'_>,
    ) -> Result<McpAnswer, Vec<McpMistake>> {
        let path = Path::of(&["tools", name]);
        let no_place = |what: BuildError| {
            let help = "name another `working_directory`, or write `sandbox: off`".to_owned();
            vec![McpMistake { path: path.key("sandbox"), what: what.to_string(), help }]
        };
        let place = self.place(name, &tool.keys.connection(), workshop).map_err(no_place)?;
        let server = Arc::new(McpServer::new(name, place));
        let told = match (server.look().await, server.desk()) {
            (Ok(()), _) => None,
            (Err(Trouble::NotSent(why) | Trouble::Refused(why) | Trouble::Lost(why)), _) => {
                Some((why, "start the server or repair its entry; `enabled: false` disables it"))
            }
            // What it offered to whoever could ask it last; each call sees to its own login.
            (Err(Trouble::Login(_)), Some(_)) if server.recalls_offers().await => None,
            (Err(Trouble::Login(_)), Some(desk)) => return Ok(McpAnswer::Awaited(desk)),
            (Err(Trouble::Login(challenge)), None) => Some((
                format!("the MCP server `{name}` requires a login: {challenge}"),
                "give its entry `headers`, such as `Authorization: Bearer ${NAME}`",
            )),
        };
        if let Some((what, help)) = told {
            return Err(vec![McpMistake { path, what, help: help.to_owned() }]);
        }
        let offers = server.offers();
        let mut wrong = unknown_names(&path, tool.keys, &offers);
        let (mut offered, mut taken) = (Vec::new(), BTreeMap::new());
        for (theirs, offer) in offers {
            if !is_wanted(tool.keys, &theirs) {
                continue;
            }
            match self.offered(name, tool, &server, &theirs, offer) {
                Ok(one) => {
                    if let Some(other) = taken.insert(one.name.clone(), theirs.clone()) {
                        let what = format!(
                            "`{theirs}` and `{other}` of the MCP server `{name}` would both be {}",
                            one.name
                        );
                        let help = "leave one of them out with `deny`".to_owned();
                        wrong.push(McpMistake { path: path.clone(), what, help });
                    }
                    offered.push(one);
                }
                Err(why) => {
                    let what =
                        format!("the tool `{theirs}` of the MCP server `{name}` cannot be used: {why}");
                    let help = format!("leave it out with `deny: [{theirs}]`");
                    wrong.push(McpMistake { path: path.clone(), what, help });
                }
            }
        }
        if wrong.is_empty() { Ok(McpAnswer::Tools(offered)) } else { Err(wrong) }
    }

    fn offered(
        &self,
        name: &str,
        tool: Entry<'_>,
        server: &Arc<McpServer>,
        theirs: &str,
        offer: Result<Offer, String>,
    ) -> Result<OfferedTool, String> {
        let offer = offer?;
        let ours = our_name(name, theirs)?;
        let Entry { common, keys } = tool;
        let own = keys.overrides.get(theirs);
        let terms = Terms {
            ignores_hints: keys.trust_hints == Some(false),
            all_ask: common.requires_approval,
            asks: own.and_then(|own| own.requires_approval),
            may_repeat: own.and_then(|own| own.idempotent),
            description: own.and_then(|own| own.description.clone()),
        };
        let is_high_risk = self.file.policy.high_risk_tools.iter().any(|named| named == ours.as_str());
        let mut spec = offer.spec(&terms);
        let prompt = own.and_then(|own| own.approval_prompt.as_ref()).or(common.approval_prompt.as_ref());
        spec.approval_prompt = prompt.cloned();
        let usual = McpLimits::default();
        let limits = McpLimits {
            time: keys.timeout.map_or(usual.time, |span| duration(span.0).max(Duration::from_millis(1))),
            answer_bytes: keys
                .max_output
                .and_then(|bytes| usize::try_from(bytes).ok())
                .unwrap_or(usual.answer_bytes),
            question: common.input_timeout.map_or(usual.question, |span| duration(span.0)),
        };
        let asks = offer.asks(&terms) || is_high_risk;
        let (server, tool) = (server.clone(), theirs.to_owned());
        Ok(OfferedTool { name: ours, spec, tool: Arc::new(McpTool { server, tool, terms, asks, limits }) })
    }

    fn place(
        &self,
        name: &str,
        tool: &McpConnection<'_>,
        workshop: &ToolFactory<'_>,
    ) -> Result<Transport, BuildError> {
        let exposed = |values: &BTreeMap<String, Secret>| {
            values.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect()
        };
        let Some(program) = tool.command else {
            let (url, headers) = (tool.url.unwrap_or_default().to_owned(), exposed(tool.headers));
            let desk = self.desk(name, tool, &headers, workshop);
            return Ok(Transport::Address { url, headers, desk });
        };
        let (directory, plan) = match tool.sandbox {
            Some(Sandbox::On) => {
                let (directory, plan) = workshop.confined(name, tool)?;
                (directory, Some(plan))
            }
            Some(Sandbox::Off) | None => {
                let said = tool.working_directory;
                (said.map_or(self.folder.clone(), |path| absolute(&self.folder, path)), None)
            }
        };
        Ok(Transport::Program(RelayOrder {
            argv: std::iter::once(program.to_owned()).chain(tool.args.iter().cloned()).collect(),
            path: std::env::var_os("PATH").unwrap_or_default(),
            directory,
            env: exposed(tool.env),
            process_limit: PROCESSES,
            plan,
        }))
    }
}

impl Config {
    /// The MCP servers that clients reach through this one. None of them is connected to before a client asks.
    pub(super) fn gateways(
        &self,
        workshop: &ToolFactory<'_>,
    ) -> Result<BTreeMap<String, Arc<Gateway>>, BuildError> {
        let mut gateways = BTreeMap::new();
        for (name, keys) in &self.file.gateways {
            let place = self.place(name, &keys.connection(), workshop)?;
            let desk = match &place {
                Transport::Address { desk, .. } => desk.clone().map(|desk| -> Arc<dyn LoginDesk> { desk }),
                Transport::Program(_) => None,
            };
            let upstream =
                passage(name, place).map_err(|why| BuildError::Gateway { name: name.clone(), why })?;
            let (wait, gives_sessions) = (keys.wait.map(|span| span.0), keys.give_sessions.unwrap_or(false));
            let gateway = Gateway { name: name.clone(), upstream, desk, wait, gives_sessions };
            gateways.insert(name.clone(), Arc::new(gateway));
        }
        Ok(gateways)
    }

    /// Where people log in at a server that is not told by its headers who is there.
    fn desk(
        &self,
        name: &str,
        tool: &McpConnection<'_>,
        headers: &BTreeMap<String, String>,
        workshop: &ToolFactory<'_>,
    ) -> Option<Arc<Desk>> {
        if headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            return None;
        }
        let (logins, clock) = workshop.logins()?;
        let url = tool.url.unwrap_or_default().to_owned();
        let mut guard = guard(tool.allowed_hosts, UnnamedHosts::Public);
        // The server itself is called anyway, wherever it is.
        guard.allowed_hosts.extend(own_host(&url));
        let oauth = tool.oauth;
        let client = oauth.and_then(|oauth| {
            let secret = oauth.client_secret.as_ref().map(|secret| secret.expose().to_owned());
            Some(OwnClient { id: oauth.client_id.clone()?, secret })
        });
        let options = DeskOptions {
            server: name.to_owned(),
            url,
            headers: headers.clone(),
            client,
            scopes: oauth.and_then(|oauth| oauth.scopes.clone()),
            guard,
            public_url: self.file.server.public_url.clone(),
        };
        Some(Arc::new(Desk::new(options, logins, clock)))
    }
}

/// Says now and then what the start waits for, for as long as it does.
async fn reported<T>(server: &str, answer: impl Future<Output = T>) -> T {
    tracing::info!(server, "mcp: connecting");
    let mut answer = std::pin::pin!(answer);
    let mut waited = Duration::ZERO;
    loop {
        tokio::select! {
            answer = &mut answer => return answer,
            () = tokio::time::sleep(STILL_WAITING) => {}
        }
        waited += STILL_WAITING;
        tracing::warn!(server, seconds = waited.as_secs(), "mcp: still waiting for the server to answer");
    }
}

/// The host of an address with its port, as the guard compares them.
fn own_host(url: &str) -> Option<String> {
    let url = reqwest::Url::parse(url).ok()?;
    let host = url.host_str()?.to_ascii_lowercase().replace(['[', ']'], "");
    Some(format!("{host}:{}", url.port_or_known_default()?))
}

fn is_wanted(tool: &McpKeys, theirs: &str) -> bool {
    let named = |list: &Vec<String>| list.iter().any(|name| name == theirs);
    tool.allow.as_ref().is_none_or(named) && !tool.deny.as_ref().is_some_and(named)
}

/// A name that is not there may be a slip of the pen: then the tool that was meant would go its own way.
fn unknown_names(
    path: &Path,
    tool: &McpKeys,
    offers: &BTreeMap<String, Result<Offer, String>>,
) -> Vec<McpMistake> {
    let known: Vec<&str> = offers.keys().map(String::as_str).collect();
    let lists = [("allow", tool.allow.as_ref()), ("deny", tool.deny.as_ref())];
    let listed = lists.into_iter().flat_map(|(key, list)| {
        let items = list.into_iter().flatten().enumerate();
        items.map(move |(no, name)| (path.key(key).item(no), name))
    });
    let overridden = tool.overrides.keys().map(|name| (path.key("overrides").key(name), name));
    let unknown = listed.chain(overridden).filter(|(_, name)| !known.contains(&name.as_str()));
    let told = unknown.map(|(path, name)| McpMistake {
        what: format!("the server has no tool `{name}`"),
        help: advice(name, known.iter().copied()).unwrap_or_else(|| "it offers no tools".to_owned()),
        path,
    });
    told.collect()
}

/// `files__read_file`: the entry and the tool, in letters that every provider of models takes.
pub(super) fn our_name(entry: &str, theirs: &str) -> Result<ToolName, String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let name: String = format!("{entry}{BETWEEN}{theirs}").chars().map(plain).collect();
    if name.len() > NAME_BYTES {
        return Err(format!("its name here, {name}, has more than {NAME_BYTES} characters"));
    }
    ToolName::new(&name).map_err(|bad| bad.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_clear_and_taken_by_every_provider() {
        assert_eq!(our_name("files", "read_file").unwrap().as_str(), "files__read_file");
        assert_eq!(our_name("my.files", "a/b c").unwrap().as_str(), "my_files__a_b_c");
        assert!(our_name("files", &"x".repeat(60)).unwrap_err().contains("64 characters"));
    }
}
