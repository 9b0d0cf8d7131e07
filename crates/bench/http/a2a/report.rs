//! What was measured over A2A, as tables with ratios and as JSON.

use serde_json::{Value, json};

use super::subscribers::Followed;
use super::{Results, Server, Trips};
use crate::Plan;
use crate::measure::{ByConcurrency, percentile};
use crate::report::{figures, write_json};

pub(crate) fn print(plan: &Plan, results: &Results) {
    println!(
        "A2A 1.0 over HTTP+JSON, client on the same machine; {} s for each figure; beside the official Python SDK's server \
         (1.3.0, uvicorn with uvloop, one process) with tasks in memory and in SQLite (WAL, FULL, as ours)",
        plan.seconds
    );
    table("message:send, a plain answer", results, |trips| &trips.plain);
    table("message:send, a question, an approval, the end", results, |trips| &trips.cycle);
    println!("one task, subscribed to; from sending the approval to hearing of the end:");
    println!(
        "{:>7} {:>14} | {:>11} {:>10} | {:>9} {:>9} {:>9} | {:>12}",
        "many", "server", "KB for each", "let in s", "first ms", "p50 ms", "last ms", "last ÷ ours"
    );
    for followed in &results.followed {
        let (count, name) = (followed.count, followed.server.name());
        match &followed.came {
            Ok(came) => println!(
                "{count:>7} {name:>14} | {:>11.1} {:>10.2} | {:>9.1} {:>9.1} {:>9.1} | {:>12.2}",
                came.kb_each,
                came.opened_s,
                came.first_ms,
                came.p50_ms,
                came.last_ms,
                came.last_ms / ours_last_ms(results, count),
            ),
            Err(why) => println!("{count:>7} {name:>14} | did not survive it: {why}"),
        }
    }
    write_json(plan, &as_json(results));
}

fn table(title: &str, results: &Results, of: impl Fn(&Trips) -> &ByConcurrency) {
    println!("{title}:");
    println!(
        "{:>5} {:>14} | {:>9} {:>15} | {:>9} {:>9} {:>9}",
        "at", "server", "per s", "ours is … times", "p50 ms", "p99 ms", "p50 ÷ ours"
    );
    let ours = results.trips.iter().find(|(server, _)| *server == Server::Ours).map(|(_, trips)| of(trips));
    for (at, ours) in ours.into_iter().flatten() {
        for (server, trips) in &results.trips {
            let Some(measured) = of(trips).get(at) else { continue };
            let (p50, p99) = (percentile(&measured.cycle_ms, 0.5), percentile(&measured.cycle_ms, 0.99));
            println!(
                "{at:>5} {:>14} | {:>9.0} {:>15.2} | {p50:>9.2} {p99:>9.2} {:>9.2}",
                server.name(),
                measured.per_second(),
                ours.per_second() / measured.per_second(),
                p50 / percentile(&ours.cycle_ms, 0.5),
            );
        }
    }
}

/// When the last of ours had heard, where so many were measured.
fn ours_last_ms(results: &Results, count: usize) -> f64 {
    let is_ours = |one: &&Followed| one.server == Server::Ours && one.count == count;
    let came = results.followed.iter().find(is_ours).and_then(|ours| ours.came.as_ref().ok());
    came.map_or(f64::NAN, |came| came.last_ms)
}

fn as_json(results: &Results) -> Value {
    let trips: Value = results
        .trips
        .iter()
        .map(|(server, trips)| {
            let both = json!({"plain": figures(&trips.plain), "approval": figures(&trips.cycle)});
            (server.name().to_owned(), both)
        })
        .collect();
    let mut subscribers = json!({});
    for followed in &results.followed {
        subscribers[followed.count.to_string()][followed.server.name()] = match &followed.came {
            Ok(came) => json!({
                "kb_each": came.kb_each,
                "opened_s": came.opened_s,
                "first_ms": came.first_ms,
                "p50_ms": came.p50_ms,
                "last_ms": came.last_ms,
            }),
            Err(why) => json!({"failed": why}),
        };
    }
    json!({"a2a": trips, "subscribers": subscribers})
}
