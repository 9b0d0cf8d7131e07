//! pgbench with our own statements: recorded from the log of the database, with ids that differ from cycle to cycle.
//!
//! One cycle of a server that nobody else uses is recorded, with every statement that it sends and what it sends with
//! them. Statements are prepared once for each connection, as ours are. Those of a transaction are sent in one trip;
//! ours takes two, because it looks at what it read before it writes.

use std::collections::HashMap;
use std::time::Duration;

use regex::Regex;
use tokio::runtime::Runtime;

use super::database::{Database, Postgres};
use super::nodes;
use crate::client::Connection;
use crate::measure::Measured;
use crate::ours;

/// Cycles that are recorded, behind some that prepare statements.
const RECORDED: usize = 20;
const WARM_UP: usize = 10;

/// How often many clients begin at once before what they cause is recorded.
const WAVES: usize = 5;

/// What comes after a cycle has been answered (hints, leases given back) is its own, too.
const AFTERWARDS: Duration = Duration::from_millis(60);

/// What each session of ours sets that matters for plans.
const SESSION: &str = "-c enable_seqscan=off -c jit=off -c plan_cache_mode=force_generic_plan";

/// The statements of a cycle, or of many at once, for pgbench.
pub(super) struct Script {
    text: String,
    /// How many cycles it is.
    cycles: usize,
    pub(super) statements: usize,
    pub(super) trips: usize,
    /// What a cycle leaves behind.
    rows: Rows,
}

/// How many rows there are in the two tables that every cycle grows.
#[derive(Clone, Copy)]
struct Rows {
    runs: usize,
    links: usize,
}

impl Rows {
    fn of(database: &Database) -> Rows {
        Rows { runs: database.count("runs"), links: database.count("links") }
    }
}

/// A statement of the log.
struct Logged {
    session: String,
    sql: String,
    /// As they are written in SQL.
    parameters: Vec<String>,
}

/// The statements of a cycle; of several cycles those that most of them had, because a node also looks around by
/// itself now and then.
pub(super) fn record(runtime: &Runtime, postgres: &Postgres) -> Script {
    let database = postgres.database();
    database.log_statements();
    let node = nodes(&database, 1);
    let mut cycles: Vec<Vec<Logged>> = Vec::new();
    let empty = Rows::of(&database);
    runtime.block_on(async {
        let mut connection = Connection::open(&node[0].address).await;
        for n in 0..WARM_UP + RECORDED {
            let before = postgres.log().len();
            ours::cycle(&mut connection).await;
            tokio::time::sleep(AFTERWARDS).await;
            if n >= WARM_UP {
                cycles.push(logged(&String::from_utf8_lossy(&postgres.log()[before..])));
            }
        }
    });
    let (full, count) = (Rows::of(&database), WARM_UP + RECORDED);
    let rows = Rows { runs: (full.runs - empty.runs) / count, links: (full.links - empty.links) / count };
    let shape = |cycle: &[Logged]| -> Vec<String> { cycle.iter().map(|one| one.sql.clone()).collect() };
    let mut seen: HashMap<Vec<String>, usize> = HashMap::new();
    cycles.iter().for_each(|cycle| *seen.entry(shape(cycle)).or_default() += 1);
    let usual = cycles.iter().max_by_key(|cycle| seen[&shape(cycle)]).unwrap();
    script(usual, 1, rows)
}

/// The statements of so many cycles at once, as a node that is busy sends them: in its groups.
pub(super) fn record_together(runtime: &Runtime, postgres: &Postgres, cycles: usize) -> Script {
    let database = postgres.database();
    database.log_statements();
    let node = nodes(&database, 1);
    let (statements, rows) = runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..cycles {
            clients.push(Connection::open(&node[0].address).await);
        }
        // The last of a few waves: by then statements are prepared, and the groups are what they usually are.
        let mut last = None;
        for _ in 0..WAVES {
            tokio::time::sleep(AFTERWARDS).await;
            let (begin, before) = (postgres.log().len(), Rows::of(&database));
            futures_util::future::join_all(clients.iter_mut().map(ours::cycle)).await;
            tokio::time::sleep(AFTERWARDS).await;
            let (log, after) = (postgres.log(), Rows::of(&database));
            let rows = Rows { runs: after.runs - before.runs, links: after.links - before.links };
            last = Some((logged(&String::from_utf8_lossy(&log[begin..])), rows));
        }
        last.unwrap()
    });
    // Counting rows is the bench's own question.
    let of_node: Vec<Logged> =
        statements.into_iter().filter(|one| !one.sql.starts_with("SELECT count(*) FROM")).collect();
    script(&of_node, cycles, rows)
}

/// Reads a piece of the log: statements, each with its parameters in the entry behind it.
fn logged(text: &str) -> Vec<Logged> {
    let begin = Regex::new(r"^\S+ \S+ \S+ \[(\d+)\] ([A-Z]+):  (.*)$").unwrap();
    let statement = Regex::new(r"(?s)^(?:execute [^:]+|statement): (.*)$").unwrap();
    let parameter = Regex::new(r"(?s)\$\d+ = ('(?:[^']|'')*'|NULL)").unwrap();
    let mut entries: Vec<[String; 3]> = Vec::new();
    for line in text.lines() {
        match (begin.captures(line), entries.last_mut()) {
            (Some(entry), _) => entries.push([1, 2, 3].map(|part| entry[part].to_owned())),
            (None, Some([_, _, before])) => before.push_str(&format!("\n{}", line.trim_start_matches('\t'))),
            (None, None) => {}
        }
    }
    let mut all: Vec<Logged> = Vec::new();
    for [session, kind, text] in entries {
        if let (Some(statement), "LOG") = (statement.captures(&text), kind.as_str()) {
            all.push(Logged { session, sql: statement[1].to_owned(), parameters: Vec::new() });
        } else if let (Some(list), Some(of)) =
            (text.strip_prefix("parameters: "), all.iter_mut().rev().find(|one| one.session == session))
        {
            of.parameters = parameter.captures_iter(list).map(|found| found[1].to_owned()).collect();
        }
    }
    all
}

fn script(cycle: &[Logged], cycles: usize, rows: Rows) -> Script {
    let mut names: Vec<&str> = Vec::new();
    let mut trips: Vec<(&str, Vec<String>, bool)> = Vec::new();
    let mut changing = Changing::of(cycle);
    for one in cycle {
        let text = match one.parameters.as_slice() {
            [] => one.sql.clone(),
            parameters => {
                let known = names.iter().position(|name| *name == one.sql);
                let no = known.unwrap_or_else(|| {
                    names.push(&one.sql);
                    names.len() - 1
                });
                let parameters: Vec<String> = parameters.iter().map(|text| changing.within(text)).collect();
                format!("EXECUTE sf_{no} ({})", parameters.join(", "))
            }
        };
        // Everything between BEGIN and COMMIT of a session is one trip.
        match trips.iter_mut().find(|(session, _, is_open)| *is_open && *session == one.session) {
            Some((_, statements, is_open)) => {
                *is_open = one.sql != "COMMIT";
                statements.push(text);
            }
            None => trips.push((&one.session, vec![text], one.sql == "BEGIN")),
        }
    }
    let mut text = String::from("\\if :sf_ready\n\\else\n");
    text.push_str("\\set sf_n 1000000000000000 + :client_id * 1000000000000\n");
    names.iter().enumerate().for_each(|(no, sql)| text.push_str(&format!("PREPARE sf_{no} AS {sql};\n")));
    text.push_str("\\set sf_ready 1\n\\endif\n\\set sf_n :sf_n + 1\n");
    trips.iter().for_each(|(_, statements, _)| text.push_str(&format!("{};\n", statements.join("\\;\n"))));
    Script { text, cycles, statements: cycle.len(), trips: trips.len(), rows }
}

/// What has to differ from cycle to cycle: ids, numbers, the name of the session.
struct Changing {
    session: Option<String>,
    pattern: Regex,
    found: Vec<String>,
}

impl Changing {
    fn of(cycle: &[Logged]) -> Changing {
        let start = cycle.iter().find(|one| one.sql.starts_with("INSERT INTO sessions"));
        let session = start
            .and_then(|start| start.parameters.get(2))
            .map(|text| text.trim_matches(|one| matches!(one, '\'' | '{' | '}' | '"')).to_owned());
        let pattern = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9]{16,19}\b";
        Changing { session, pattern: Regex::new(pattern).unwrap(), found: Vec::new() }
    }

    /// The same text with variables of pgbench in it. They are numbers; a uuid may be written in digits alone.
    fn within(&mut self, text: &str) -> String {
        let found = &mut self.found;
        let replaced = self.pattern.replace_all(text, |one: &regex::Captures<'_>| {
            let known = found.iter().position(|before| before == &one[0]);
            let no = 1 + known.unwrap_or_else(|| {
                found.push(one[0].to_owned());
                found.len() - 1
            });
            if one[0].contains('-') { format!("{no:016}:sf_n") } else { format!("{no}:sf_n") }
        });
        match &self.session {
            Some(session) => replaced.replace(session.as_str(), "session:sf_n"),
            None => replaced.into_owned(),
        }
    }
}

impl Script {
    /// Cycles a second of so many clients; the first second, in which each prepares its statements, does not count.
    pub(super) fn run(&self, database: &Database, clients: usize, seconds: f64) -> Measured {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cycle.sql");
        std::fs::write(&file, &self.text).unwrap();
        let whole = seconds.ceil().max(1.0) as usize;
        let mut command = database.program("pgbench");
        command.args([
            "-n",
            "-M",
            "simple",
            "-P",
            "1",
            "-D",
            "sf_ready=0",
            "-j",
            &clients.min(2).to_string(),
        ]);
        command.args(["-c", &clients.to_string(), "-T", &(whole + 1).to_string()]).arg("-f").arg(&file);
        let output = command.env("PGOPTIONS", SESSION).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "pgbench: {said}");
        self.assert_done(database, &String::from_utf8_lossy(&output.stdout));
        let each = Regex::new(r"progress: [0-9.]+ s, ([0-9.]+) tps, lat ([0-9.]+) ms").unwrap();
        let mut measured = Measured::default();
        for second in each.captures_iter(&said).skip(1) {
            let number = |part: usize| second[part].parse::<f64>().unwrap();
            measured.cycles += (number(1) * self.cycles as f64) as usize;
            measured.seconds += 1.0;
            measured.cycle_ms.push(number(2));
        }
        assert!(measured.cycles > 0, "pgbench: {said}");
        measured
    }

    /// What was replayed did what it does for a server: each cycle left its rows, instead of meeting those of another.
    fn assert_done(&self, database: &Database, said: &str) {
        let processed = Regex::new(r"number of transactions actually processed: (\d+)").unwrap();
        let times: usize = processed.captures(said).unwrap()[1].parse().unwrap();
        let rows = Rows::of(database);
        assert_eq!(rows.runs, times * self.rows.runs, "runs after pgbench did it {times} times");
        assert_eq!(rows.links, times * self.rows.links, "links after pgbench did it {times} times");
    }
}
