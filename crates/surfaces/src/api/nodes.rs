//! The servers that share a database: who is there, of which version, with how much of the work.
//!
//! For whoever runs them; a load balancer asks `/readyz`.

use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;
use standfast_engine::{NodeFacts, NodeView};
use utoipa::ToSchema;

use super::routes::{ApiResult, CallerOf, DefaultAnswers};
use crate::http::{App, refusal, rfc3339};

/// The servers that are there.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Nodes {
    /// The one that answers comes first.
    nodes: Vec<NodeBody>,
    /// The newest kinds of events that all of them can read: nothing newer is written.
    feature_level: u32,
}

/// A server that is there.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NodeBody {
    /// A new one with each start.
    id: String,
    /// What it is called; null when it says nothing that this one can read.
    name: Option<String>,
    /// Whether it is the one that answers.
    this: bool,
    version: Option<String>,
    /// The newest kinds of events that it can read.
    feature_level: Option<u32>,
    started_at: Option<String>,
    /// When it counts as gone without another heartbeat; null for the only server of its database, which has none.
    seen_until: Option<String>,
    /// How many of the 256 shards of due work it has.
    shards: usize,
    /// Runs that it works on, when it last said so.
    runs_at_work: Option<usize>,
    /// How long the last run that it claimed had been due, in milliseconds; 0 when nothing was due.
    behind_ms: Option<i64>,
}

/// The servers that share this one's database.
#[utoipa::path(
    get, path = "/nodes", tag = "operations", responses((status = 200, body = Nodes), DefaultAnswers)
)]
pub(super) async fn nodes(State(app): State<App>, Extension(who): CallerOf) -> ApiResult<Json<Nodes>> {
    let nodes = app.engine.nodes().list(&who).await.map_err(|error| refusal::problem(None, &error))?;
    let feature_level = app.engine.nodes().feature_level();
    Ok(Json(Nodes { nodes: nodes.iter().map(body).collect(), feature_level }))
}

fn body(view: &NodeView) -> NodeBody {
    let facts = view.facts.as_ref();
    let said = |what: fn(&NodeFacts) -> String| facts.map(what).filter(|text| !text.is_empty());
    NodeBody {
        id: view.node.to_string(),
        name: said(|facts| facts.name.clone()),
        this: view.is_this,
        version: said(|facts| facts.version.clone()),
        feature_level: facts.map(|facts| facts.level),
        started_at: facts.map(|facts| rfc3339(facts.since)),
        seen_until: view.seen_until.map(rfc3339),
        shards: view.shards,
        runs_at_work: facts.map(|facts| facts.at_work),
        behind_ms: facts.map(|facts| facts.behind.0),
    }
}
