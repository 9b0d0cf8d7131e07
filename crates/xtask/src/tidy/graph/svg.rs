//! Draws graphs as SVG: rows of boxes, each above what it uses, and arrows down.
//!
//! Written by hand: a few boxes need no layout library, and the same graph gives the same file, so that a drawing in the
//! repository changes only when the graph does.

use std::collections::BTreeMap;

use super::Graph;

const BOX_HEIGHT: usize = 34;
const ROW_HEIGHT: usize = 92;
const LETTER: usize = 9;
const GAP: usize = 34;
const MARGIN: usize = 28;
const TITLE: usize = 44;

/// How wide a row may be.
const WIDEST: usize = 900;

/// The middle of a box, and its width.
#[derive(Clone, Copy)]
struct Spot {
    x: usize,
    y: usize,
    width: usize,
}

/// The graphs below each other, each with its title.
pub(crate) fn draw(graphs: &[(String, Graph)]) -> String {
    let width = graphs.iter().map(|(title, graph)| width_of(title, graph)).max().unwrap_or(0) + 2 * MARGIN;
    let (mut body, mut top) = (String::new(), 0);
    for (title, graph) in graphs {
        body.push_str(&format!(
            "<text x=\"{MARGIN}\" y=\"{}\" font-weight=\"bold\" text-anchor=\"start\">{}</text>\n",
            top + 30,
            escaped(title)
        ));
        let spots = spots(graph, width, top + TITLE);
        for (from, to) in graph.essential_edges() {
            if let (Some(from), Some(to)) = (spots.get(from), spots.get(to)) {
                body.push_str(&arrow(*from, *to));
            }
        }
        for (name, spot) in &spots {
            body.push_str(&boxed(name, *spot));
        }
        top += TITLE + rows_to_draw(graph).len() * ROW_HEIGHT;
    }
    let height = top + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"14\" text-anchor=\"middle\">\n\
         <defs><marker id=\"arrow\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
         <path d=\"M 0 0 L 10 5 L 0 10 z\" fill=\"#5b6b7b\"/></marker></defs>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

fn box_width(name: &str) -> usize {
    name.chars().count() * LETTER + 24
}

fn row_width(row: &[String]) -> usize {
    row.iter().map(|name| box_width(name)).sum::<usize>() + row.len().saturating_sub(1) * GAP
}

/// The rows, none of them too wide to read: what does not fit stands below.
fn rows_to_draw(graph: &Graph) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for row in graph.rows() {
        let mut line: Vec<String> = Vec::new();
        for name in row {
            line.push(name);
            if row_width(&line) > WIDEST
                && let Some(last) = line.pop()
            {
                rows.push(std::mem::replace(&mut line, vec![last]));
            }
        }
        rows.push(line);
    }
    rows
}

fn width_of(title: &str, graph: &Graph) -> usize {
    let rows = rows_to_draw(graph);
    rows.iter().map(|row| row_width(row)).max().unwrap_or(0).max(title.chars().count() * LETTER)
}

/// Where each box stands: rows from the top, each in the middle.
fn spots(graph: &Graph, width: usize, top: usize) -> BTreeMap<String, Spot> {
    let mut spots = BTreeMap::new();
    for (row_number, row) in rows_to_draw(graph).iter().rev().enumerate() {
        let mut left = (width - row_width(row).min(width)) / 2;
        for name in row {
            let own = box_width(name);
            let spot =
                Spot { x: left + own / 2, y: top + row_number * ROW_HEIGHT + BOX_HEIGHT / 2, width: own };
            spots.insert(name.clone(), spot);
            left += own + GAP;
        }
    }
    spots
}

fn boxed(name: &str, spot: Spot) -> String {
    format!(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BOX_HEIGHT}\" rx=\"6\" fill=\"#eef3f8\" stroke=\"#5b6b7b\"/>\
         <text x=\"{}\" y=\"{}\" fill=\"#1c2733\">{}</text>\n",
        spot.x - spot.width / 2,
        spot.y - BOX_HEIGHT / 2,
        spot.width,
        spot.x,
        spot.y + 5,
        escaped(name)
    )
}

/// From the lower edge of a box to the upper edge of the one below; in a row, or upwards, around the side.
fn arrow(from: Spot, to: Spot) -> String {
    let (x1, y1) = (from.x, from.y + BOX_HEIGHT / 2);
    let (x2, y2) = (to.x, to.y.saturating_sub(BOX_HEIGHT / 2));
    let bend = if y2 > y1 { (y2 - y1) / 2 } else { ROW_HEIGHT / 2 };
    format!(
        "<path d=\"M {x1} {y1} C {x1} {}, {x2} {}, {x2} {y2}\" fill=\"none\" stroke=\"#5b6b7b\" marker-end=\"url(#arrow)\"/>\n",
        y1 + bend,
        y2.saturating_sub(bend)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::graph::Place;

    #[test]
    fn every_component_is_a_box_and_every_essential_edge_an_arrow() {
        let mut graph = Graph::of(["log", "wakes", "commit"].map(str::to_owned));
        for (from, to) in [("commit", "wakes"), ("wakes", "log"), ("commit", "log")] {
            graph.add(from, to, Place { path: String::new(), line: 1, what: String::new() });
        }
        let drawn = draw(&[("the <engine>".to_owned(), graph)]);
        for name in ["log", "wakes", "commit"] {
            assert_eq!(drawn.matches(&format!(">{name}</text>")).count(), 1, "{drawn}");
        }
        assert_eq!(drawn.matches("marker-end").count(), 2, "{drawn}");
        assert!(drawn.contains("the &lt;engine&gt;"), "{drawn}");
        let height = |name: &str| -> usize {
            let before = drawn.split(&format!(" fill=\"#1c2733\">{name}<")).next().unwrap();
            before.rsplit("y=\"").next().unwrap().trim_end_matches('"').parse().unwrap()
        };
        assert!(height("commit") < height("wakes") && height("wakes") < height("log"));
    }
}
