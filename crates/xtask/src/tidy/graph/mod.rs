//! Who uses whom: components as nodes, `use` lines, paths and method calls as edges.
//!
//! Knows nothing of this repository: `reading.rs` makes a graph of the sources below a folder, `svg.rs` draws one. Which
//! graphs there are and what is allowed in them is in `../order.rs`.

mod methods;
mod reading;
mod svg;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use methods::{declared, inherent_methods};
pub(crate) use reading::{Folder, graph_of, product_tokens};
pub(crate) use svg::draw;

/// Where one component uses another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) path: String,
    pub(crate) line: usize,
    /// The path or the call, as it is written there.
    pub(crate) what: String,
}

/// Components and what they use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Graph {
    pub(crate) nodes: BTreeSet<String>,
    edges: BTreeMap<(String, String), Vec<Place>>,
}

impl Graph {
    /// A graph of these components, none of which uses another yet.
    pub(crate) fn of(nodes: impl IntoIterator<Item = String>) -> Graph {
        Graph { nodes: nodes.into_iter().collect(), edges: BTreeMap::new() }
    }

    /// Notes that `from` uses `to`; a component may always use itself.
    pub(crate) fn add(&mut self, from: &str, to: &str, place: Place) {
        if from != to && self.nodes.contains(from) && self.nodes.contains(to) {
            let places = self.edges.entry((from.to_owned(), to.to_owned())).or_default();
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }

    /// The same graph, of these components alone.
    pub(crate) fn only<'a>(&self, names: impl Iterator<Item = &'a str>) -> Graph {
        let kept = names.filter(|name| self.nodes.contains(*name)).map(str::to_owned);
        let mut graph = Graph::of(kept);
        for (from, to, places) in self.edges() {
            places.iter().for_each(|place| graph.add(from, to, place.clone()));
        }
        graph
    }

    /// Every edge with the places that make it.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (&str, &str, &[Place])> {
        self.edges.iter().map(|((from, to), places)| (from.as_str(), to.as_str(), places.as_slice()))
    }

    /// What a component uses.
    pub(crate) fn uses<'a>(&'a self, from: &'a str) -> impl Iterator<Item = &'a str> {
        self.edges.keys().filter(move |(one, _)| one == from).map(|(_, to)| to.as_str())
    }

    /// The components that use each other, directly or through others: each group of two or more, sorted.
    pub(crate) fn cycles(&self) -> Vec<Vec<String>> {
        self.groups().into_iter().filter(|group| group.len() > 1).collect()
    }

    /// The components in rows: each stands above everything that it uses. A cycle shares a row.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let groups = self.groups();
        let group_of = |name: &str| groups.iter().position(|group| group.iter().any(|one| one == name));
        let mut heights: Vec<Option<usize>> = vec![None; groups.len()];
        // Each pass settles at least the groups whose uses are all settled.
        for _ in 0..groups.len() {
            for (at, group) in groups.iter().enumerate() {
                let below = group.iter().flat_map(|name| self.uses(name)).filter_map(group_of);
                let below: Vec<usize> = below.filter(|other| *other != at).collect();
                if heights[at].is_none() && below.iter().all(|other| heights[*other].is_some()) {
                    let highest = below.iter().filter_map(|other| heights[*other]).max();
                    heights[at] = Some(highest.map_or(0, |highest| highest + 1));
                }
            }
        }
        let top = heights.iter().flatten().max().copied().unwrap_or(0);
        let row = |height: usize| {
            let here = groups.iter().zip(&heights).filter(|(_, found)| **found == Some(height));
            here.flat_map(|(group, _)| group.iter().cloned()).collect::<Vec<String>>()
        };
        (0..=top).map(row).filter(|row| !row.is_empty()).collect()
    }

    /// The edges that do not follow from others: `a -> c` is left out where `a -> b -> c`.
    pub(crate) fn essential_edges(&self) -> Vec<(&str, &str)> {
        let follows = |from: &str, to: &str| {
            self.uses(from).filter(|between| *between != to).any(|between| self.reaches(between, to, from))
        };
        self.edges().map(|(from, to, _)| (from, to)).filter(|(from, to)| !follows(from, to)).collect()
    }

    /// The graph as text: rows from the top, then every edge with how often it is used.
    pub(crate) fn shown(&self, title: &str) -> String {
        let mut text = format!("{title}\n");
        for row in self.rows().iter().rev() {
            text.push_str(&format!("  {}\n", row.join("  ")));
        }
        for from in &self.nodes {
            let uses: Vec<String> = self
                .edges()
                .filter(|(one, _, _)| one == from)
                .map(|(_, to, places)| format!("{to} ({})", places.len()))
                .collect();
            if !uses.is_empty() {
                text.push_str(&format!("    {from} -> {}\n", uses.join(", ")));
            }
        }
        match self.cycles().as_slice() {
            [] => text.push_str("  no cycle\n"),
            cycles => {
                for cycle in cycles {
                    text.push_str(&format!("  cycle: {}\n", cycle.join(", ")));
                }
            }
        }
        text
    }

    /// Whether there is a way from one component to another that does not pass a third.
    fn reaches(&self, from: &str, to: &str, without: &str) -> bool {
        let (mut seen, mut next) = (BTreeSet::from([without]), vec![from]);
        while let Some(here) = next.pop() {
            if here == to {
                return true;
            }
            if seen.insert(here) {
                next.extend(self.uses(here));
            }
        }
        false
    }

    /// Every component with those that it uses and that use it in return.
    fn groups(&self) -> Vec<Vec<String>> {
        let mut groups: Vec<Vec<String>> = Vec::new();
        for name in &self.nodes {
            let is_together = |other: &String| self.reaches(name, other, "") && self.reaches(other, name, "");
            match groups.iter_mut().find(|group| group.iter().all(is_together)) {
                Some(group) => group.push(name.clone()),
                None => groups.push(vec![name.clone()]),
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let names = edges.iter().flat_map(|(from, to)| [*from, *to]).map(str::to_owned);
        let mut graph = Graph::of(names);
        for (line, (from, to)) in edges.iter().enumerate() {
            graph.add(from, to, Place { path: format!("{from}.rs"), line, what: (*to).to_owned() });
        }
        graph
    }

    #[test]
    fn a_cycle_is_found_through_others() {
        let found = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("c", "e")]).cycles();
        assert_eq!(found, [["a", "b", "c"]]);
        assert!(graph(&[("a", "b"), ("a", "c"), ("b", "c")]).cycles().is_empty());
    }

    #[test]
    fn rows_stand_above_what_they_use() {
        let found = graph(&[("top", "left"), ("top", "right"), ("left", "base"), ("right", "base")]).rows();
        assert_eq!(found, [vec!["base"], vec!["left", "right"], vec!["top"]]);
    }

    #[test]
    fn what_follows_from_other_edges_is_not_drawn() {
        let graph = graph(&[("a", "b"), ("b", "c"), ("a", "c")]);
        assert_eq!(graph.essential_edges(), [("a", "b"), ("b", "c")]);
    }

    #[test]
    fn the_text_names_rows_edges_and_cycles() {
        let shown = graph(&[("a", "b"), ("a", "b")]).shown("two");
        assert_eq!(shown, "two\n  a\n  b\n    a -> b (2)\n  no cycle\n");
        assert!(graph(&[("a", "b"), ("b", "a")]).shown("x").ends_with("cycle: a, b\n"));
    }
}
