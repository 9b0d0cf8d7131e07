//! `ListTasks`: the tasks of an agent that the caller may see, those that changed last first.
//!
//! A page token is the place of the last task of the page: when it changed, and its id. Tasks that change while somebody
//! turns pages move to the front and are missed on later pages, as with every list in this order.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use standfast_core::hold::HoldKind;
use standfast_core::id::RunId;
use standfast_core::name::SessionId;
use standfast_core::run::status;
use standfast_core::time::Timestamp;
use standfast_engine::{ListedRun, RecentRuns};

use super::error::A2aError;
use super::operations::{OperationContext, history_length};
use super::{map, wire};
use crate::http::parse_rfc3339;

/// Tasks of a page, unless the client wants another number.
const PAGE: i32 = 50;
/// Tasks of a page at most.
const PAGE_MAX: i32 = 100;

pub(super) async fn list(
    asked: &OperationContext,
    request: &wire::ListTasksRequest,
) -> Result<wire::ListTasksResponse, A2aError> {
    let size = request.page_size.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&size) {
        return Err(A2aError::invalid("pageSize", format!("must be 1 to {PAGE_MAX}")));
    }
    let size = usize::try_from(size).unwrap_or(1);
    let history = history_length(request.history_length)?.unwrap_or(0);
    let after = request.page_token.as_deref().filter(|token| !token.is_empty()).map(place).transpose()?;
    let since =
        request.status_timestamp_after.as_deref().filter(|at| !at.is_empty()).map(instant).transpose()?;
    let bad_name = |bad: standfast_core::name::BadName| A2aError::invalid("contextId", bad.to_string());
    let context = request.context_id.as_deref().filter(|id| !id.is_empty());
    let wanted = RecentRuns {
        agent: asked.agent.clone(),
        session: context.map(SessionId::new).transpose().map_err(bad_name)?,
        phases: request.status.map(map::phases).unwrap_or_default(),
        since,
    };
    let about = |error| A2aError::of(None, &error);
    let found = asked.app.engine.reads().recent_runs(&asked.who, wanted).await.map_err(about)?;
    let mut listed = Vec::new();
    for one in found {
        if request.status.is_none_or(|_| is_certain(&one)) || is_in(asked, &one, request.status).await? {
            listed.push(one);
        }
    }
    let total_size = listed.len();
    let is_behind =
        |one: &ListedRun| after.is_none_or(|(at, id)| (one.at(), *one.id().bytes()) < (at, *id.bytes()));
    let mut rest = listed.into_iter().filter(is_behind);
    let page: Vec<ListedRun> = rest.by_ref().take(size).collect();
    let next_page_token = match (page.last(), rest.next()) {
        (Some(last), Some(_)) => token(last),
        (_, _) => String::new(),
    };
    let mut tasks = Vec::with_capacity(page.len());
    for one in page {
        let mut task = asked.task(one.id(), history).await?;
        if request.include_artifacts != Some(true) {
            task.artifacts.clear();
        }
        tasks.push(task);
    }
    Ok(wire::ListTasksResponse { tasks, next_page_token, page_size: size, total_size })
}

/// Whether the phase of a run says all about its state: it does, unless it waits for a sub-run.
fn is_certain(one: &ListedRun) -> bool {
    match one {
        ListedRun::Run(row) => row
            .run
            .state
            .holds
            .iter()
            .all(|hold| hold.kind != HoldKind::External && hold.kind != HoldKind::Auth),
        ListedRun::Quarantined(_) => true,
    }
}

async fn is_in(
    asked: &OperationContext,
    one: &ListedRun,
    wanted: Option<wire::TaskState>,
) -> Result<bool, A2aError> {
    let ListedRun::Run(row) = one else { return Ok(true) };
    let run = row.run.facts.id;
    let about = |error| A2aError::of(Some(run), &error);
    let view = asked.app.engine.reads().run(&asked.who, run).await.map_err(about)?;
    let below: Vec<HoldKind> = view.holds_below.iter().map(|(_, kind)| *kind).collect();
    Ok(Some(map::state(status(&row.run), &below)) == wanted)
}

fn token(last: &ListedRun) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{}.{}", last.at().0, last.id()))
}

fn place(token: &str) -> Result<(Timestamp, RunId), A2aError> {
    let read = || {
        let text = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
        let (at, id) = text.split_once('.')?;
        Some((Timestamp(at.parse().ok()?), id.parse().ok()?))
    };
    read().ok_or_else(|| A2aError::invalid("pageToken", "was not issued by this server"))
}

fn instant(text: &str) -> Result<Timestamp, A2aError> {
    let why = "must be an instant in UTC, as 2026-11-15T11:32:00.000Z";
    parse_rfc3339(text).ok_or_else(|| A2aError::invalid("statusTimestampAfter", why))
}

#[cfg(test)]
mod tests {
    use standfast_core::id::StorageKind;
    use standfast_core::name::Tenant;
    use standfast_testkit::damage::each_text;

    use super::*;

    /// T31: a page token is a place that this server could have written, or none; one that is read and written again is the same place.
    #[test]
    fn t31_any_page_token_is_a_place_or_none() {
        let run = |n| RunId::new(&Tenant::default_tenant(), StorageKind::Durable, Timestamp(n), [3; 5]);
        let written = |at: i64, id: RunId| BASE64_URL_SAFE_NO_PAD.encode(format!("{at}.{id}"));
        let at = 1_762_000_000_000;
        let mut taken = 0;
        let mut read = |token: &str| {
            let Ok((Timestamp(at), id)) = place(token) else { return };
            taken += 1;
            assert_eq!(place(&written(at, id)).unwrap(), (Timestamp(at), id), "{token}");
        };
        each_text(&[&written(at, run(at)), &written(0, run(5)), "", "a.b"], 40_000, &mut read);
        // What stands in it, damaged before it is written.
        each_text(&[&format!("{at}.{}", run(at)), &format!("-1.{}", run(5))], 40_000, |text| {
            read(&BASE64_URL_SAFE_NO_PAD.encode(text));
        });
        assert!(taken > 50, "{taken}");
    }
}
