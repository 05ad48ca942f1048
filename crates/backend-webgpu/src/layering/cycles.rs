//! Import cycles between files.

use std::collections::{BTreeMap, HashMap};

/// Tarjan's strongly connected components.
pub(super) struct Circles<'a> {
    arrows: &'a BTreeMap<&'a str, Vec<&'a str>>,
    /// The number of each file that was visited, and the least that it reaches.
    visited: HashMap<&'a str, (usize, usize)>,
    stack: Vec<&'a str>,
    found: Vec<Vec<&'a str>>,
}

impl<'a> Circles<'a> {
    /// The largest sets of files that import one another, each sorted.
    pub(super) fn of(arrows: &'a BTreeMap<&'a str, Vec<&'a str>>) -> Vec<Vec<&'a str>> {
        let mut circles = Self { arrows, visited: HashMap::new(), stack: Vec::new(), found: Vec::new() };
        for &file in arrows.keys() {
            if !circles.visited.contains_key(file) {
                circles.visit(file);
            }
        }
        circles.found
    }

    fn visit(&mut self, file: &'a str) -> usize {
        let number = self.visited.len();
        let mut least = number;
        self.visited.insert(file, (number, least));
        self.stack.push(file);
        let arrows = self.arrows;
        for &other in arrows.get(file).into_iter().flatten() {
            match self.visited.get(other) {
                None => least = least.min(self.visit(other)),
                Some(&(number, _)) if self.stack.contains(&other) => least = least.min(number),
                Some(_) => {}
            }
        }
        self.visited.insert(file, (number, least));
        if least == number {
            let at = self.stack.iter().position(|&on_stack| on_stack == file).unwrap();
            let mut circle: Vec<&str> = self.stack.drain(at..).collect();
            if circle.len() > 1 {
                circle.sort_unstable();
                self.found.push(circle);
            }
        }
        least
    }
}

#[test]
fn circles_are_found() {
    let arrows = BTreeMap::from([
        ("a", vec!["b", "c"]),
        ("b", vec!["d"]),
        ("c", vec!["c", "e"]),
        ("d", vec!["a", "c"]),
        ("e", vec!["f"]),
        ("f", vec!["e"]),
    ]);
    assert_eq!(Circles::of(&arrows), [vec!["e", "f"], vec!["a", "b", "d"]]);
}
