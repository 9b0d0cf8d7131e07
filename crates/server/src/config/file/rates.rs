//! How often somebody may ask (`server.limits.rates`).
//!
//! How it is counted is the door's (`http/rates.rs` of the surfaces).

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;
use standfast_surfaces::http::is_route;

/// How many requests a node answers within a minute. Whatever is more gets 429 with `Retry-After`. Without a number there is no
/// limit.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Rates {
    /// From one address, or one /64 network of IPv6, before it is known who asks. Behind a proxy this needs `trusted_proxies`.
    #[garde(inner(range(min = 1, max = 1_000_000)))]
    pub per_address: Option<u32>,
    /// Of one user, decisions apart.
    #[garde(inner(range(min = 1, max = 1_000_000)))]
    pub per_principal: Option<u32>,
    /// Of all users of a tenant together, and as many decisions.
    #[garde(inner(range(min = 1, max = 1_000_000)))]
    pub per_tenant: Option<u32>,
    /// Decisions of one user. Default: as many as `per_principal`.
    #[garde(inner(range(min = 1, max = 1_000_000)))]
    pub decisions: Option<u32>,
    /// Of one user to one route, such as `POST /api/v1/agents/{id}/runs: 60`: method and path, with `{id}` for what differs.
    #[garde(custom(known_routes))]
    pub routes: BTreeMap<String, u32>,
}

fn known_routes(routes: &BTreeMap<String, u32>, (): &()) -> garde::Result {
    for (route, a_minute) in routes {
        if !is_route(route) {
            return Err(garde::Error::new(format!(
                "{route:?} is no route; write a method and a path with `{{id}}` for what differs, such as \
                 `POST /api/v1/agents/{{id}}/runs`"
            )));
        }
        if *a_minute == 0 {
            return Err(garde::Error::new(format!("{route:?} allows nothing; write 1 or more")));
        }
    }
    Ok(())
}
