//! What the files of this crate import from one another: by `use`, and by paths that begin with `crate`, `super` or `self`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{
    Attribute, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemUse, Macro, Meta, UseTree, VisRestricted,
    Visibility,
};

/// The names that lead from the crate to a module or an item.
type Names = Vec<String>;

/// The imports of a set of files.
#[derive(Default)]
pub(super) struct Imports {
    /// The file of each module.
    files: BTreeMap<Names, String>,
    /// Modules that may import, and be imported, from everywhere.
    exempt: BTreeSet<Names>,
    /// What each name means that a module imports.
    names: HashMap<(Names, String), Names>,
    /// The paths that each module imports without handing them on to others.
    used: BTreeMap<Names, Vec<Names>>,
}

impl Imports {
    /// The imports of the files of a crate, without those whose names begin with one of `exempt`.
    pub(super) fn of_crate(source: &Path, exempt: &[&str]) -> Self {
        let mut imports = Self::default();
        for path in files(source) {
            let file = path.strip_prefix(source).unwrap().to_string_lossy().replace('\\', "/");
            if exempt.iter().any(|exempt| file.starts_with(exempt)) {
                imports.exempt.insert(module_of(&file));
            } else if file.ends_with(".rs") {
                imports.add(&file, &fs::read_to_string(&path).unwrap());
            }
        }
        imports
    }

    /// Adds a file, whose code of tests doesn't count.
    pub(super) fn add(&mut self, file: &str, code: &str) {
        let module = module_of(file);
        let parsed = syn::parse_file(code).unwrap_or_else(|error| panic!("{file}: {error}"));
        self.files.insert(module.clone(), file.to_owned());
        let mut reader = Reader { imports: self, file: module.clone(), module };
        reader.visit_file(&parsed);
    }

    /// The files that each file imports, in the order of its imports.
    pub(super) fn arrows(&self) -> BTreeMap<&str, Vec<&str>> {
        let of_module = |(module, file): (&Names, _)| {
            let used = self.used.get(module).into_iter().flatten();
            let imported = used.filter_map(|path| self.file_of(module, path, 0));
            let others: Vec<&str> = imported.filter(|other| other != file).collect();
            (String::as_str(file), others)
        };
        self.files.iter().map(of_module).collect()
    }

    /// The file in which a path ends, seen from a module; `None` outside of what was added.
    fn file_of(&self, from: &Names, path: &[String], depth: usize) -> Option<&str> {
        // Names that lead to one another in a circle lead nowhere.
        const MOST_NAMES: usize = 16;
        let (mut module, mut rest) = match path.split_first()? {
            (first, rest) if first == "crate" => (Names::new(), rest),
            _ => (from.clone(), path),
        };
        let is_absolute = rest.len() < path.len();
        while let Some((name, after)) = rest.split_first() {
            let inside: Names = module.iter().chain([name]).cloned().collect();
            if self.files.contains_key(&inside) {
                (module, rest) = (inside, after);
                continue;
            }
            if self.exempt.contains(&inside) {
                return None;
            }
            let known = self.names.get(&(module.clone(), name.clone())).filter(|_| depth < MOST_NAMES);
            if let Some(known) = known {
                let path: Names = known.iter().chain(after).cloned().collect();
                return self.file_of(&module, &path, depth + 1);
            }
            // Another crate's, or the prelude's.
            if !is_absolute && module == *from {
                return None;
            }
            break;
        }
        self.files.get(&module).map(String::as_str)
    }
}

/// The module of a file.
fn module_of(file: &str) -> Names {
    let mut module: Names = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
        module.pop();
    }
    module
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let inside = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    inside.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Reads a file's imports.
struct Reader<'a> {
    imports: &'a mut Imports,
    /// The file's module.
    file: Names,
    /// The module that is read, of the file or inside of it.
    module: Names,
}

impl Reader<'_> {
    /// A path from the crate, if it begins with `crate`, `super` or `self`; else as it is.
    fn absolute(&self, path: Names) -> Names {
        let mut module = self.module.clone();
        let mut rest = path.as_slice();
        while let Some((first, after)) = rest.split_first() {
            match first.as_str() {
                "crate" => module.clear(),
                "super" => _ = module.pop(),
                "self" => {}
                _ => break,
            }
            rest = after;
        }
        if rest.len() == path.len() {
            return path;
        }
        [vec!["crate".to_owned()], module, rest.to_vec()].concat()
    }

    fn add(&mut self, path: Names) {
        let path = self.absolute(path);
        self.imports.used.entry(self.file.clone()).or_default().push(path);
    }

    /// Adds the paths of a `use` tree behind `before`.
    fn add_tree(&mut self, tree: &UseTree, mut before: Names, is_handed_on: bool) {
        let name = match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                return self.add_tree(&path.tree, before, is_handed_on);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.add_tree(tree, before.clone(), is_handed_on));
            }
            // The module's own name in a group.
            UseTree::Name(name) if name.ident == "self" => before.last().cloned(),
            UseTree::Name(name) => Some(name.ident.to_string()).inspect(|name| before.push(name.clone())),
            UseTree::Rename(rename) => {
                if rename.ident != "self" || before.is_empty() {
                    before.push(rename.ident.to_string());
                }
                Some(rename.rename.to_string())
            }
            _ => None,
        };
        if let Some(name) = name {
            let path = self.absolute(before.clone());
            self.imports.names.insert((self.file.clone(), name), path);
        }
        if !is_handed_on {
            self.add(before);
        }
    }
}

/// Whether an item is there in tests only.
fn is_of_tests(attributes: &[Attribute]) -> bool {
    let needs_test = |attribute: &Attribute| match &attribute.meta {
        Meta::List(list) if attribute.path().is_ident("cfg") => {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition.starts_with("all(test,")
        }
        _ => false,
    };
    attributes.iter().any(needs_test)
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if is_of_tests(&item.attrs) {
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_of_tests(&item.attrs) {
            self.add_tree(&item.tree, Names::new(), !matches!(item.vis, Visibility::Inherited));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 && ["crate", "super", "self"].contains(&names[0].as_str()) {
            self.add(names);
        }
        visit::visit_path(self, path);
    }

    /// The path of a visibility is no import.
    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}

    /// The tokens of a macro, which are no paths yet.
    fn visit_macro(&mut self, call: &'ast Macro) {
        let text = call.tokens.to_string().replace(' ', "");
        for (start, first) in text.match_indices("crate::").chain(text.match_indices("super::")) {
            let before = text[..start].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || "_:".contains(c)) {
                continue;
            }
            let rest = &text[start + first.len()..];
            let end = rest.find(|c: char| !c.is_alphanumeric() && !"_:".contains(c)).unwrap_or(rest.len());
            let path = format!("{first}{}", rest[..end].trim_end_matches(':'));
            self.add(path.split("::").map(str::to_owned).collect());
        }
        visit::visit_macro(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `ops/a.rs` imports from files in `ops`, from `lib.rs`, and of a name that `ops/mod.rs` has from `ops/b.rs`.
    fn imported(code: &str) -> Vec<String> {
        let mut imports = Imports::default();
        imports.add("lib.rs", "mod ops; pub struct Lib;");
        imports.add("ops/mod.rs", "mod a; mod b; mod c; pub(crate) use b::B;");
        imports.add("ops/b.rs", "pub(crate) struct B; pub(crate) fn b() {}");
        imports.add("ops/c.rs", "pub(crate) struct C;");
        imports.add("ops/a.rs", code);
        imports.arrows()["ops/a.rs"].iter().map(|&file| file.to_owned()).collect()
    }

    #[test]
    fn imports_are_found_however_they_are_written() {
        for code in [
            "use super::b::B;",
            "use super::B;",
            "use super::{b::B};",
            "use super::b;",
            "use super::b::{self};",
            "use crate::ops::b::*;",
            "use super::{super::ops::B};",
            "use crate :: ops /* of a kind */ :: B;",
            "use {super::super::ops::b as other};",
            "mod inside { use super::super::b::B; }",
            "const TEXT: &str = \"// no comment\"; use super::B;",
            "#[cfg(test)] mod tests { use super::super::c::C; } use super::B;",
            "#[cfg(test)] use super::c::C; #[cfg(feature = \"f\")] use super::B;",
            "fn f() { super::b::b(); }",
            "fn f() -> crate::ops::B { todo!() }",
            "fn f() { vec![1, super::b::b()]; }",
        ] {
            assert_eq!(imported(code), ["ops/b.rs"], "{code}");
        }
        assert_eq!(
            imported("use crate as this; fn f() { this::ops::b::b() }"),
            ["lib.rs"],
            "the crate by another name"
        );
        assert_eq!(imported("use crate as this; use this::ops::B;"), ["lib.rs", "ops/b.rs"]);
        assert_eq!(imported("use crate::Lib; use super::{b, c::C};"), ["lib.rs", "ops/b.rs", "ops/c.rs"]);
    }

    #[test]
    fn what_is_no_import_is_none() {
        for code in [
            "// use super::b::B;",
            "const TEXT: &str = \"use super::b::B;\";",
            "pub(in crate::ops) fn f() {}",
            "pub(crate) use super::b::B;",
            "#[cfg(test)] mod tests { use super::super::b::B; }",
            "#[cfg(test)] fn f() { super::b::b() }",
            "struct S; impl S { #[cfg(test)] fn f() { super::b::b() } }",
            "use std::fmt::Debug; fn f(_: self::S) {} struct S;",
        ] {
            assert!(imported(code).is_empty(), "{code}: {:?}", imported(code));
        }
    }
}
