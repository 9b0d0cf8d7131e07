//! How often somebody may ask: token buckets for addresses, people, tenants and single routes, and what is left of them in
//! headers.
//!
//! Decisions have buckets of their own, so that whoever starts too much can still say no to it. A bucket holds what a minute
//! allows and fills evenly. Each node counts for itself, in memory of bounded size; nothing is counted that has no limit. What
//! the limits are is the configuration's (`server.limits.rates`), who is asking the door's (`guard.rs`).

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use standfast_core::time::Timestamp;
use standfast_engine::auth::Principal;
use standfast_engine::settings::RateLimits;

use super::attempts::network;
use super::problem::{Problem, ProblemDetails};
use super::route;

/// Buckets that are remembered at once. A full one is as good as none.
const MOST: usize = 65_536;

/// Within which a bucket fills, in microseconds.
const WINDOW: i64 = 60_000_000;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LEFT: HeaderName = HeaderName::from_static("ratelimit");

/// What somebody has asked for lately.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<HashMap<Key, Bucket>>);

/// Whose bucket it is, and for what.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    class: Class,
    of: String,
}

/// What is counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Class {
    Address,
    AddressDecisions,
    Principal,
    PrincipalDecisions,
    Tenant,
    TenantDecisions,
    Route,
}

/// When it is full again, in microseconds, and whether a refusal was logged since something was let through.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    full_at: i64,
    is_told: bool,
}

/// One limit that applies to a request.
#[derive(Debug)]
struct Limit {
    key: Key,
    a_minute: u32,
}

/// What is left, for the headers of an answer.
#[derive(Debug, Clone, Default)]
pub(super) struct RateNote(Vec<Allowance>);

#[derive(Debug, Clone, Copy)]
struct Allowance {
    name: &'static str,
    a_minute: u32,
    remaining: i64,
    /// Seconds until the bucket is full.
    full_in: i64,
}

impl Class {
    /// As headers and the log call it.
    fn name(self) -> &'static str {
        match self {
            Class::Address => "address",
            Class::AddressDecisions => "address-decisions",
            Class::Principal => "principal",
            Class::PrincipalDecisions => "decisions",
            Class::Tenant => "tenant",
            Class::TenantDecisions => "tenant-decisions",
            Class::Route => "route",
        }
    }
}

impl Rates {
    /// Counts a request before it is known who sends it; what is left stays with it.
    pub(super) fn count_from(
        &self,
        limits: &RateLimits,
        request: &mut Request,
        from: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<(), Problem> {
        let note = self.from(limits, (request.method(), request.uri().path()), from, now)?;
        note.stay_with(request);
        Ok(())
    }

    /// Counts a request of somebody who is known; what is left stays with it.
    pub(super) fn count_of(
        &self,
        limits: &RateLimits,
        request: &mut Request,
        who: &Principal,
        now: Timestamp,
    ) -> Result<(), Problem> {
        let note = self.of(limits, (request.method(), request.uri().path()), who, now)?;
        note.stay_with(request);
        Ok(())
    }

    fn from(
        &self,
        limits: &RateLimits,
        (method, path): (&Method, &str),
        from: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<RateNote, Problem> {
        let (Some(a_minute), Some(from)) = (limits.per_address, from) else { return Ok(RateNote::default()) };
        // Whoever watches the server is not told that it is down because others ask too much.
        if matches!(path, "/healthz" | "/readyz") {
            return Ok(RateNote::default());
        }
        let class = if is_decision(method, path) { Class::AddressDecisions } else { Class::Address };
        self.take(vec![Limit { key: Key { class, of: network(from).to_string() }, a_minute }], now)
    }

    fn of(
        &self,
        limits: &RateLimits,
        (method, path): (&Method, &str),
        who: &Principal,
        now: Timestamp,
    ) -> Result<RateNote, Problem> {
        if limits.are_none_for_people() {
            return Ok(RateNote::default());
        }
        let (person, tenant) = (format!("{}\n{}", who.tenant, who.user), who.tenant.to_string());
        let (principal, of_tenant, a_minute) = if is_decision(method, path) {
            (Class::PrincipalDecisions, Class::TenantDecisions, limits.decisions.or(limits.per_principal))
        } else {
            (Class::Principal, Class::Tenant, limits.per_principal)
        };
        let mut found = Vec::new();
        let mut limit = |class, of: &str, a_minute: Option<u32>| {
            found.extend(a_minute.map(|a_minute| Limit { key: Key { class, of: of.to_owned() }, a_minute }));
        };
        limit(principal, &person, a_minute);
        limit(of_tenant, &tenant, limits.per_tenant);
        if !limits.routes.is_empty() {
            let route = format!("{method} {}", route::of(path));
            limit(Class::Route, &format!("{route}\n{person}"), limits.routes.get(&route).copied());
        }
        self.take(found, now)
    }

    /// Takes one from each of these, or from none and says when there is one again.
    fn take(&self, limits: Vec<Limit>, now: Timestamp) -> Result<RateNote, Problem> {
        let now = now.0.saturating_mul(1000);
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = |buckets: &HashMap<Key, Bucket>, key: &Key| {
            buckets.get(key).map_or(now, |it| it.full_at.max(now))
        };
        let wait_of = |limit: &Limit| {
            let wait = full_at(&buckets, &limit.key) + interval(limit.a_minute) - now - WINDOW;
            (wait > 0).then_some(wait)
        };
        // Whoever has to wait the longest says how long.
        let refused =
            limits.iter().filter_map(|limit| Some((wait_of(limit)?, limit))).max_by_key(|(wait, _)| *wait);
        if let Some((wait, limit)) = refused {
            let seconds = u32::try_from(wait.saturating_add(999_999) / 1_000_000).unwrap_or(u32::MAX).max(1);
            if let Some(bucket) = buckets.get_mut(&limit.key)
                && !bucket.is_told
            {
                bucket.is_told = true;
                let (bucket, a_minute) = (limit.key.class.name(), limit.a_minute);
                let of = limit.key.of.replace('\n', " ");
                tracing::warn!(bucket, of, a_minute, "limits: too many requests; answering 429");
            }
            return Err(too_many(limit, seconds));
        }
        let mut note = RateNote::default();
        for Limit { key, a_minute } in limits {
            let (class, until) = (key.class, full_at(&buckets, &key) + interval(a_minute));
            if buckets.len() >= MOST && !buckets.contains_key(&key) {
                make_room(&mut buckets, now);
            }
            buckets.insert(key, Bucket { full_at: until, is_told: false });
            let remaining = (WINDOW - (until - now)) / interval(a_minute);
            let full_in = (until - now + 999_999) / 1_000_000;
            note.0.push(Allowance { name: class.name(), a_minute, remaining, full_in });
        }
        Ok(note)
    }
}

/// Forgets who has everything left; where nobody has, whoever has the most.
fn make_room(buckets: &mut HashMap<Key, Bucket>, now: i64) {
    buckets.retain(|_, bucket| bucket.full_at > now);
    if buckets.len() >= MOST {
        let mut all: Vec<i64> = buckets.values().map(|bucket| bucket.full_at).collect();
        let (_, middle, _) = all.select_nth_unstable(MOST / 2);
        let middle = *middle;
        buckets.retain(|_, bucket| bucket.full_at > middle);
    }
}

/// Microseconds for each of so many a minute.
fn interval(a_minute: u32) -> i64 {
    (WINDOW / i64::from(a_minute.max(1))).max(1)
}

impl RateNote {
    fn stay_with(self, request: &mut Request) {
        if self.0.is_empty() {
            return;
        }
        let mut all = request.extensions_mut().remove::<RateNote>().unwrap_or_default();
        all.0.extend(self.0);
        request.extensions_mut().insert(all);
    }

    /// `RateLimit-Policy` and `RateLimit`: how much there is in a minute, what is left, and in how many seconds all of it is
    /// there again. Nothing where there is no limit.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        let (mut policy, mut left) = (String::new(), String::new());
        for one in &self.0 {
            let comma = if policy.is_empty() { "" } else { ", " };
            let Allowance { name, a_minute, remaining, full_in } = one;
            let _ = write!(policy, "{comma}\"{name}\";q={a_minute};w=60");
            let _ = write!(left, "{comma}\"{name}\";r={remaining};t={full_in}");
        }
        for (name, text) in [(POLICY, policy), (LEFT, left)] {
            headers.extend(HeaderValue::from_str(&text).ok().map(|value| (name, value)));
        }
    }

    /// What a refusal says.
    pub(super) fn of_refusal(problem: &Problem) -> RateNote {
        let Some((name, a_minute)) = problem.more.rate else { return RateNote::default() };
        let full_in = problem.more.retry_after.map_or(0, i64::from);
        RateNote(vec![Allowance { name, a_minute, remaining: 0, full_in }])
    }
}

fn too_many(limit: &Limit, seconds: u32) -> Problem {
    let (name, a_minute) = (limit.key.class.name(), limit.a_minute);
    let whose = match limit.key.class {
        Class::Address | Class::AddressDecisions => "your address",
        Class::Principal | Class::PrincipalDecisions | Class::Route => "you",
        Class::Tenant | Class::TenantDecisions => "your tenant",
    };
    let what = match limit.key.class {
        Class::AddressDecisions | Class::PrincipalDecisions | Class::TenantDecisions => "decisions",
        Class::Route => "requests to this route",
        Class::Address | Class::Principal | Class::Tenant => "requests",
    };
    let detail = format!(
        "too many {what} from {whose}: {a_minute} a minute are allowed; nothing was done. Try again in {seconds} seconds"
    );
    let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate-limited", "Too many requests", detail);
    let details = ProblemDetails {
        retry_after: Some(seconds),
        rate: Some((name, a_minute)),
        ..ProblemDetails::default()
    };
    problem.with(details)
}

/// Whether a request decides a hold, or says who is asked about it. Clicks in chats do, and all come from the addresses of the chat's
/// provider. Messages of A2A may decide as well: what they say is read later than this.
fn is_decision(method: &Method, path: &str) -> bool {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return false;
    }
    let mut parts = path.split('/').skip(1);
    let mut next = || parts.next().unwrap_or_default();
    match (next(), next(), next(), next(), next()) {
        ("approve" | "review" | "link", _, _, _, _)
        | ("chat", "slack" | "discord", _, _, _)
        | ("api", "v1", "holds", _, _)
        | ("sessions" | "inboxes", _, "holds", _, _)
        | ("tealagents", "v1alpha1", "resume", _, _) => true,
        ("api", "inboxes", _, "tasks", _) => path.ends_with("/resume"),
        (_, _, _, _, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use standfast_core::name::{Tenant, UserId};

    use super::*;

    const NOON: Timestamp = Timestamp(1_762_000_000_000);
    const RUNS: (&Method, &str) = (&Method::POST, "/api/v1/agents/ops/runs");
    const DECIDE: (&Method, &str) = (&Method::POST, "/api/v1/holds/hold_1/resolve");

    fn later(millis: i64) -> Timestamp {
        Timestamp(NOON.0 + millis)
    }

    fn who(tenant: &str, user: &str) -> Principal {
        Principal { tenant: Tenant::new(tenant).unwrap(), ..Principal::of(UserId::new(user).unwrap()) }
    }

    fn limits(principal: u32, tenant: u32, decisions: u32) -> RateLimits {
        let of = |n: u32| Some(n).filter(|n| *n > 0);
        RateLimits {
            per_principal: of(principal),
            per_tenant: of(tenant),
            decisions: of(decisions),
            ..RateLimits::default()
        }
    }

    fn passes(
        rates: &Rates,
        limits: &RateLimits,
        asked: (&Method, &str),
        who: &Principal,
        now: Timestamp,
    ) -> bool {
        rates.of(limits, asked, who, now).is_ok()
    }

    /// T37: a minute's worth at once, then as fast as it fills; nobody else pays for it.
    #[test]
    fn t37_a_bucket_holds_a_minute_and_fills_evenly() {
        let (rates, limits) = (Rates::default(), limits(6, 0, 0));
        let (ann, bob) = (who("default", "ann"), who("default", "bob"));
        let count =
            |who: &Principal, now| (0..20).filter(|_| passes(&rates, &limits, RUNS, who, now)).count();
        assert_eq!(count(&ann, NOON), 6);
        let refused = rates.of(&limits, RUNS, &ann, NOON).unwrap_err();
        assert_eq!((refused.status, refused.more.retry_after), (429, Some(10)));
        assert_eq!(count(&ann, later(9_999)), 0);
        assert_eq!(count(&ann, later(10_000)), 1);
        assert_eq!(count(&ann, later(40_000)), 3);
        assert_eq!(count(&bob, later(40_000)), 6, "bob has asked for nothing yet");
        assert_eq!(count(&ann, later(400_000)), 6, "never more than a minute's worth");
    }

    /// T37: whoever starts too much can still decide, and the other way around.
    #[test]
    fn t37_decisions_have_a_bucket_of_their_own() {
        let (rates, limits, ann) = (Rates::default(), limits(2, 0, 3), who("default", "ann"));
        let count = |asked| (0..9).filter(|_| passes(&rates, &limits, asked, &ann, NOON)).count();
        assert_eq!((count(RUNS), count(DECIDE)), (2, 3));
        assert_eq!((count(RUNS), count(DECIDE)), (0, 0));
    }

    /// T37: all people of a tenant together; another tenant has everything that is its own.
    #[test]
    fn t37_a_tenant_is_limited_as_a_whole() {
        let (rates, limits) = (Rates::default(), limits(4, 10, 0));
        let noisy: usize = (0..20)
            .map(|n| {
                let one = who("noisy", &format!("u{n}"));
                (0..9).filter(|_| passes(&rates, &limits, RUNS, &one, NOON)).count()
            })
            .sum();
        assert_eq!(noisy, 10);
        let quiet = who("quiet", "ann");
        assert_eq!((0..9).filter(|_| passes(&rates, &limits, RUNS, &quiet, NOON)).count(), 4);
        // What one of its limits refuses is taken from none of them.
        assert_eq!((0..9).filter(|_| passes(&rates, &limits, RUNS, &who("quiet", "bob"), NOON)).count(), 4);
        assert_eq!((0..9).filter(|_| passes(&rates, &limits, RUNS, &who("quiet", "cy"), NOON)).count(), 2);
    }

    #[test]
    fn a_route_is_limited_whatever_its_ids() {
        let routes = [("POST /api/v1/agents/{id}/runs".to_owned(), 2)].into();
        let (rates, limits) = (Rates::default(), RateLimits { routes, ..RateLimits::default() });
        let ann = who("default", "ann");
        let tries = ["ops", "web", "sales"].map(|agent| {
            passes(&rates, &limits, (&Method::POST, &format!("/api/v1/agents/{agent}/runs")), &ann, NOON)
        });
        assert_eq!(tries, [true, true, false]);
        assert!(passes(&rates, &limits, (&Method::GET, "/api/v1/runs"), &ann, NOON), "another route");
    }

    #[test]
    fn addresses_are_counted_before_anybody_is_known() {
        let limits = RateLimits { per_address: Some(2), ..RateLimits::default() };
        let rates = Rates::default();
        let ask = |from: &str, asked| rates.from(&limits, asked, from.parse().ok(), NOON).is_ok();
        assert_eq!([(); 3].map(|()| ask("10.0.0.1", RUNS)), [true, true, false]);
        assert!(!ask("::ffff:10.0.0.1", RUNS) && ask("10.0.0.2", RUNS));
        assert_eq!(
            ["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(|from| ask(from, RUNS)),
            [true, true, false]
        );
        assert!(ask("10.0.0.1", DECIDE) && ask("10.0.0.1", (&Method::GET, "/readyz")));
    }

    #[test]
    fn headers_say_what_is_left() {
        let (rates, limits, ann) = (Rates::default(), limits(60, 600, 0), who("default", "ann"));
        let mut headers = HeaderMap::new();
        rates.of(&limits, RUNS, &ann, NOON).unwrap();
        rates.of(&limits, RUNS, &ann, NOON).unwrap().write(&mut headers);
        assert_eq!(headers[POLICY], "\"principal\";q=60;w=60, \"tenant\";q=600;w=60");
        assert_eq!(headers[LEFT], "\"principal\";r=58;t=2, \"tenant\";r=598;t=1");
        let mut none = HeaderMap::new();
        rates.of(&RateLimits::default(), RUNS, &ann, NOON).unwrap().write(&mut none);
        assert!(none.is_empty());
    }

    #[test]
    fn what_decides_is_known_by_its_path() {
        for (path, decides) in [
            ("/api/v1/holds/hold_1/resolve", true),
            ("/api/v1/holds/batch", true),
            ("/approve/hold_1", true),
            ("/review", true),
            ("/link/abc", true),
            ("/chat/slack/ops", true),
            ("/chat/discord/ops", true),
            ("/chat/account/token", false),
            ("/sessions/s/holds/h", true),
            ("/inboxes/i/holds/h", true),
            ("/api/inboxes/i/tasks/t/resume", true),
            ("/tealagents/v1alpha1/resume/r", true),
            ("/tealagents/v1alpha1/resume/r/sse", true),
            ("/api/inboxes/i/tasks/t/complete", false),
            ("/api/inboxes/i/tasks", false),
            ("/api/v1/agents/holds/runs", false),
            ("/sessions/approve", false),
            ("/", false),
        ] {
            assert_eq!(is_decision(&Method::POST, path), decides, "{path}");
            assert!(!is_decision(&Method::GET, path), "{path}");
        }
    }

    #[test]
    fn memory_is_bounded_however_many_ask() {
        let (rates, limits) = (Rates::default(), limits(10, 0, 0));
        for n in 0..2 * MOST {
            assert!(passes(&rates, &limits, RUNS, &who("default", &format!("u{n}")), NOON));
        }
        assert!(rates.0.lock().unwrap().len() <= MOST);
    }
}
