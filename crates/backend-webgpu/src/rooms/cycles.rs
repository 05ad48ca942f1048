//! Import cycles between files, by their `use` lines.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use super::{EXEMPT, code, files};

/// The most files that may import one another in a circle.
const MOST: usize = 3;

/// The file whose `State` holds what each family remembers of a device, of types that are the families' own: these
/// imports are left out.
const STATE: &str = "ops/op_context.rs";

/// A module: the names that lead to it.
type Module = Vec<String>;

#[derive(Default)]
struct Imports {
    /// The file of each module.
    files: BTreeMap<Module, String>,
    /// What each name means that a module imports.
    names: HashMap<(Module, String), Vec<String>>,
    /// The paths that each module imports without handing them on to others.
    used: BTreeMap<Module, Vec<Vec<String>>>,
}

impl Imports {
    fn add(&mut self, file: &str, code: &str) {
        let mut module: Module = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
            module.pop();
        }
        self.files.insert(module.clone(), file.to_owned());
        for statement in code.split(';') {
            // What stands before belongs to another item.
            let line =
                statement.rfind("\nuse ").or_else(|| statement.rfind(" use ")).map(|at| &statement[at + 1..]);
            let Some(tree) = line.and_then(|line| line.strip_prefix("use ")) else { continue };
            let handed_on = statement.contains("pub use") || statement.contains(") use ");
            for path in paths(tree) {
                let (path, name) = match path.split_once(" as ") {
                    Some((path, name)) => (path.to_owned(), name.to_owned()),
                    None => (path.clone(), path.rsplit("::").next().unwrap_or_default().to_owned()),
                };
                let path: Vec<String> = path.split("::").map(|name| name.trim().to_owned()).collect();
                self.names.insert((module.clone(), name), path.clone());
                if !handed_on {
                    self.used.entry(module.clone()).or_default().push(path);
                }
            }
        }
    }

    /// The module in which a path ends, seen from another one; `None` outside of the crate.
    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let mut module = from.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (module, rest) = (Module::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while let Some(("super", after)) =
                    rest.split_first().map(|(name, after)| (name.as_str(), after))
                {
                    module.pop();
                    rest = after;
                }
            }
            name => {
                let inside: Module = from.iter().cloned().chain([name.to_owned()]).collect();
                if !self.files.contains_key(&inside) {
                    return None;
                }
            }
        }
        while let Some((name, after)) = rest.split_first() {
            let inside: Module = module.iter().cloned().chain([name.clone()]).collect();
            if self.files.contains_key(&inside) {
                (module, rest) = (inside, after);
                continue;
            }
            // A name that the module has from elsewhere.
            let imported = self.names.get(&(module.clone(), name.clone())).filter(|_| depth < 8);
            let found = imported.and_then(|path| self.resolve(&module, path, depth + 1));
            return Some(found.unwrap_or(module));
        }
        Some(module)
    }

    /// The files that each file imports.
    fn arrows(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (module, file) in &self.files {
            let used = self.used.get(module).into_iter().flatten();
            let imported = used.filter_map(|path| self.files.get(&self.resolve(module, path, 0)?));
            let of_a_family = |other: &str| other.matches('/').count() > 1 && !other.contains("/shared/");
            let counted = imported.filter(|other| *other != file && !(file == STATE && of_a_family(other)));
            arrows.insert(file, counted.map(String::as_str).collect());
        }
        arrows
    }
}

/// The paths of a `use` tree.
fn paths(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((before, group)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let group = group.rsplit_once('}').map_or(group, |(group, _)| group);
    let (mut items, mut depth) = (vec![String::new()], 0);
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        items.last_mut().unwrap().push(c);
    }
    let items = items.iter().filter(|item| !item.trim().is_empty());
    items.flat_map(|item| paths(item)).map(|path| format!("{before}{path}")).collect()
}

/// Tarjan's strongly connected components.
struct Circles<'a> {
    arrows: &'a BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// The number of each file that was visited, and the least that it reaches.
    visited: HashMap<&'a str, (usize, usize)>,
    stack: Vec<&'a str>,
    found: Vec<BTreeSet<&'a str>>,
}

impl<'a> Circles<'a> {
    fn of(arrows: &'a BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<BTreeSet<&'a str>> {
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
            let circle: BTreeSet<&str> = self.stack.drain(at..).collect();
            if circle.len() > 1 {
                self.found.push(circle);
            }
        }
        least
    }
}

#[test]
fn paths_and_circles_are_found() {
    assert_eq!(paths("crate::{a::{B, c}, d as e}"), ["crate::a::B", "crate::a::c", "crate::d as e"]);
    let mut imports = Imports::default();
    imports.add("ops/mod.rs", "\nmod a;\nuse a::A;\n");
    imports.add("ops/a.rs", "\nuse super::b::B;\nfn f() { g(|x| x); }");
    imports.add("ops/b.rs", "\nuse crate::ops::A;\n");
    let arrows = imports.arrows();
    assert_eq!(Circles::of(&arrows), [BTreeSet::from(["ops/a.rs", "ops/b.rs"])]);
}

#[test]
fn few_files_import_one_another() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&source, &mut all);
    let mut imports = Imports::default();
    for path in all {
        let file = path.strip_prefix(&source).unwrap().to_string_lossy().replace('\\', "/");
        if !EXEMPT.iter().any(|exempt| file.starts_with(exempt)) {
            imports.add(&file, &code(&std::fs::read_to_string(&path).unwrap()));
        }
    }
    let arrows = imports.arrows();
    let checked: usize = arrows.values().map(BTreeSet::len).sum();
    assert!(checked > 500, "only {checked} imports were found");
    for circle in Circles::of(&arrows) {
        assert!(circle.len() <= MOST, "{} files import one another: {circle:?}", circle.len());
    }
}
