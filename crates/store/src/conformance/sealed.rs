//! Sealed secrets: kept by name, changed only by whoever read the latest.
//!
//! A store cannot read them; two servers that renew one at the same moment must not both believe that they did.

use super::Factory;
use super::support::{World, block_on, tenant};
use crate::SealedChange;

impl World {
    fn sealed(&self, of: &str, name: &str) -> Option<String> {
        block_on(self.store().sealed(tenant(of), name.into())).unwrap()
    }

    fn seal(&self, name: &str, before: Option<&str>, after: Option<&str>) -> bool {
        let (before, after) = (before.map(str::to_owned), after.map(str::to_owned));
        let change = SealedChange { tenant: tenant("default"), name: name.into(), before, after };
        block_on(self.store().change_sealed(change)).unwrap()
    }
}

pub fn a_sealed_secret_is_found_by_its_whole_name(factory: &Factory) {
    let mut world = World::new(factory);
    assert!(world.seal("login a", None, Some("é1")));
    world.reopen();
    assert_eq!(world.sealed("default", "login a").as_deref(), Some("é1"));
    for other in ["login", "login aa", "Login a", "", "%"] {
        assert_eq!(world.sealed("default", other), None, "{other}");
    }
    assert_eq!(world.sealed("acme", "login a"), None, "not by another tenant");
}

pub fn a_sealed_secret_is_changed_by_whoever_read_the_latest(factory: &Factory) {
    let world = World::new(factory);
    assert!(world.seal("x", None, None), "there is none, and there is to be none");
    assert!(!world.seal("x", Some("0"), Some("1")));
    assert!(world.seal("x", None, Some("1")));
    assert!(!world.seal("x", None, Some("2")), "there is one by now");
    assert!(!world.seal("x", None, None));
    assert!(world.seal("x", Some("1"), Some("2")));
    assert!(!world.seal("x", Some("1"), Some("3")));
    assert_eq!(world.sealed("default", "x").as_deref(), Some("2"));
    assert!(!world.seal("x", Some("1"), None));
    assert!(world.seal("x", Some("2"), None));
    assert_eq!(world.sealed("default", "x"), None);
}
