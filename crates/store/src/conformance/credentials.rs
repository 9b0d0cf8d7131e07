//! API keys: found by prefix, never overwritten, revoked once.
//!
//! A store keeps what it is given; whether a key is valid is judged elsewhere.

use standfast_core::digest::Digest;
use standfast_core::time::Millis;

use super::Factory;
use super::support::{World, block_on, tenant};
use crate::Credential;

fn credential(of: &str, prefix: &str) -> Credential {
    Credential {
        tenant: tenant(of),
        prefix: prefix.into(),
        hash: Digest([9; 32]),
        facts: "{\"user\":\"é\\u0000\"}".into(),
        expires_at: None,
        revoked_at: None,
    }
}

impl World {
    fn put(&self, credential: &Credential) -> bool {
        block_on(self.store().put_credential(credential.clone())).unwrap()
    }

    fn credential(&self, prefix: &str) -> Option<Credential> {
        block_on(self.store().credential(prefix.into())).unwrap()
    }

    fn credentials(&self, of: &str) -> Vec<Credential> {
        block_on(self.store().list_credentials(tenant(of))).unwrap()
    }

    fn revoke(&self, of: &str, prefix: &str) -> bool {
        block_on(self.store().revoke_credential(tenant(of), prefix.into(), self.now())).unwrap()
    }
}

pub fn a_credential_is_found_by_its_whole_prefix(factory: &Factory) {
    let mut world = World::new(factory);
    let expires_at = Some(world.now().plus(Millis::hours(1)));
    let kept = Credential { expires_at, ..credential("default", "abcd") };
    assert!(world.put(&kept));
    world.reopen();
    assert_eq!(world.credential("abcd"), Some(kept));
    for other in ["abc", "abcde", "ABCD", "", "%"] {
        assert_eq!(world.credential(other), None, "{other}");
    }
}

pub fn a_credential_is_never_overwritten(factory: &Factory) {
    let world = World::new(factory);
    let first = credential("default", "abcd");
    assert!(world.put(&first));
    let other = Credential { hash: Digest([1; 32]), facts: "{}".into(), ..first.clone() };
    assert!(!world.put(&other));
    assert!(!world.put(&credential("acme", "abcd")), "also not from another tenant");
    assert_eq!(world.credential("abcd"), Some(first.clone()));
    assert_eq!(world.credentials("default"), [first]);
    assert_eq!(world.credentials("acme"), []);
}

pub fn a_tenant_lists_its_own_credentials_in_order(factory: &Factory) {
    let world = World::new(factory);
    let [b, a, c] = [("default", "b"), ("default", "a"), ("acme", "c")].map(|(of, no)| credential(of, no));
    for one in [&b, &a, &c] {
        assert!(world.put(one));
    }
    assert_eq!(world.credentials("default"), [a, b]);
    assert_eq!(world.credentials("acme"), [c]);
    assert_eq!(world.credentials("nobody"), []);
}

pub fn a_credential_is_revoked_once(factory: &Factory) {
    let mut world = World::new(factory);
    let kept = credential("default", "abcd");
    assert!(world.put(&kept));
    assert!(!world.revoke("acme", "abcd"), "not by another tenant");
    assert!(!world.revoke("default", "none"));
    assert_eq!(world.credential("abcd"), Some(kept.clone()));
    let revoked_at = Some(world.now());
    assert!(world.revoke("default", "abcd"));
    world.later(Millis::seconds(9));
    assert!(world.revoke("default", "abcd"));
    world.reopen();
    assert_eq!(world.credential("abcd"), Some(Credential { revoked_at, ..kept }));
}

pub fn a_credential_expires_no_later_than_it_was_told(factory: &Factory) {
    let mut world = World::new(factory);
    let [early, late] = [1, 2].map(|hours| world.now().plus(Millis::hours(hours)));
    let forever = credential("default", "abcd");
    assert!(
        world.put(&forever)
            && world.put(&Credential { expires_at: Some(early), ..credential("default", "efgh") })
    );
    let expire = |world: &World, of: &str, prefix: &str, at| {
        block_on(world.store().expire_credential(tenant(of), prefix.into(), at)).unwrap()
    };
    assert!(!expire(&world, "acme", "abcd", late), "not by another tenant");
    assert!(!expire(&world, "default", "none", late));
    assert!(expire(&world, "default", "abcd", late) && expire(&world, "default", "efgh", late));
    world.reopen();
    let ends = |world: &World, prefix| world.credential(prefix).unwrap().expires_at;
    assert_eq!((ends(&world, "abcd"), ends(&world, "efgh")), (Some(late), Some(early)));
    assert!(expire(&world, "default", "abcd", early));
    assert_eq!(world.credential("abcd"), Some(Credential { expires_at: Some(early), ..forever }));
}
