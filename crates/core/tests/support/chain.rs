//! The log as a chain of links: it verifies, and whatever is changed in it is found.
//!
//! Knows nothing of what the events say.

use standfast_core::event::{Envelope, Event};
use standfast_core::id::{CallNo, Seq};
use standfast_core::link::{Chain, Contents, FIRST_PREVIOUS, Link};
use standfast_core::time::Timestamp;

use super::{person, run_id};

/// Sealed into links the log verifies, and any flipped bit is found.
pub(crate) fn check_chain(appends: &[Vec<Envelope>], pick: usize) -> Result<(), String> {
    let links = sealed(appends);
    let whole: Vec<Envelope> = links.iter().map(|link| link.events().unwrap()).collect::<Vec<_>>().concat();
    if whole != appends.concat() || verify(&links).is_err() {
        return Err("the sealed log is not the log".into());
    }
    let victim = pick % links.len();
    for broken in broken_links(&links[victim], pick) {
        let mut links = links.clone();
        links[victim] = broken;
        if verify(&links).is_ok() {
            return Err(format!("a changed link passes: {:?}", links[victim]));
        }
    }
    Ok(())
}

/// The appends as a store would seal them.
pub(crate) fn sealed(appends: &[Vec<Envelope>]) -> Vec<Link> {
    let mut previous = FIRST_PREVIOUS;
    let seal = |(n, append): (usize, &Vec<Envelope>)| {
        let events: Vec<Event> = append.iter().map(|envelope| envelope.event.clone()).collect();
        let chain = Chain { previous, salt: [u8::try_from(n % 251).unwrap(); 16] };
        let link = Link::seal(run_id(), append[0].seq, append[0].at, append[0].actor.clone(), &events, chain);
        previous = link.hash;
        link
    };
    appends.iter().enumerate().map(seal).collect()
}

fn verify(links: &[Link]) -> Result<(), String> {
    let (mut previous, mut wanted) = (FIRST_PREVIOUS, Seq(1));
    for link in links {
        link.verify(previous, wanted).map_err(|bad| bad.to_string())?;
        link.events().map_err(|bad| bad.to_string())?;
        (previous, wanted) = (link.hash, link.next());
    }
    Ok(())
}

/// The link with one thing about it changed, in every way that somebody might.
pub(crate) fn broken_links(link: &Link, pick: usize) -> Vec<Link> {
    let bit = 1u8 << (pick % 8);
    let broken = |change: &dyn Fn(&mut Link)| {
        let mut link = link.clone();
        change(&mut link);
        link
    };
    vec![
        broken(&|link| {
            let Contents::Whole { payload, .. } = &mut link.contents else { return };
            let at = pick % payload.len();
            payload[at] ^= bit;
        }),
        broken(&|link| {
            let Contents::Whole { salt, .. } = &mut link.contents else { return };
            salt[pick % 16] ^= bit;
        }),
        broken(&|link| link.hash.0[pick % 32] ^= bit),
        broken(&|link| link.header.at = Timestamp(link.header.at.0 ^ (1 << (pick % 63)))),
        broken(&|link| link.header.actor = person("mallory")),
        broken(&|link| link.header.first = Seq(link.header.first.0 ^ 1)),
        broken(&|link| link.header.count ^= 1),
        broken(&|link| link.header.run = link.header.run.child(CallNo(1), 1)),
    ]
}
