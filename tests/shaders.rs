//! Every variant of every kernel, without a device: it parses, validates with no more than it declares to
//! need, keeps to the lint's rules, and is laid out as the Rust side believes.

mod lint;
mod translate;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use backend_webgpu::variants::{Lib, PADDING, Requirements, Target, Variant, all_variants, compose};
use conformance::hash_of_name;
use lint::Limits;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ResourceBinding, StorageAccess, TypeInner};
use rayon::prelude::*;
use translate::Language;

/// How many failing variants are listed.
const LISTED: usize = 10;

/// A variant's text for one kind of device, and what has to hold of it.
struct Composed {
    variant: Variant,
    text: String,
    capabilities: Capabilities,
    limits: Limits,
}

impl Composed {
    fn label(&self) -> String {
        format!("{:?}", self.variant)
    }
}

/// One in so many of a variant's texts is looked at, and one in so many translations made: all with `EVERY=1`. No value of
/// `EVERY` leaves a variant without a text.
const TEXTS: usize = 2;
const TRANSLATIONS: usize = 4;

/// Whether one of a variant's texts or translations is looked at, which differs from variant to variant.
fn is_chosen(variant: &Variant, index: usize, usual: usize) -> bool {
    let every = suites::every(usual).expect("EVERY is a number").min(usual);
    (hash_of_name(&format!("{variant:?}")) as usize).wrapping_add(index).is_multiple_of(every)
}

/// What ties this suite to the backend's kernels: texts that devices may be given, of every variant at least one.
fn composed() -> Vec<Composed> {
    let mut all = Vec::new();
    let mut seen = HashSet::new();
    for variant in all_variants().into_iter().filter(|&variant| seen.insert(variant)) {
        let targets = [(false, false), (true, true)];
        let chosen = targets.into_iter().enumerate().filter(|&(index, _)| is_chosen(&variant, index, TEXTS));
        for (_, (immediates, unroll)) in chosen {
            // unpack2x16float and its like, which WebGPU has everywhere and naga counts as a capability.
            let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
            capabilities.set(Capabilities::IMMEDIATES, immediates);
            let requires = variant.requires();
            capabilities.set(Capabilities::SHADER_FLOAT16, requires.f16);
            capabilities.set(Capabilities::COOPERATIVE_MATRIX, requires.cooperative_matrices);
            capabilities.set(Capabilities::SUBGROUP, requires.subgroups);
            all.push(Composed {
                text: compose(&variant, Target { immediates, unroll }),
                capabilities,
                limits: limits(requires),
                variant,
            });
        }
    }
    all
}

/// The limits of the smallest device that has what the variant requires.
fn limits(requires: Requirements) -> Limits {
    let Requirements { storage_buffers, workgroup, .. } = requires;
    let storage_buffers = storage_buffers.max(Limits::PORTABLE.storage_buffers);
    Limits { workgroup, storage_buffers }
}

type Validated = Result<(Module, ModuleInfo), String>;

/// Every text, parsed and validated once for all tests.
static ALL: LazyLock<Vec<(Composed, Validated)>> = LazyLock::new(|| {
    let validated = |composed: Composed| {
        let validated = validate(&composed);
        (composed, validated)
    };
    composed().into_par_iter().map(validated).collect()
});

fn validate(composed: &Composed) -> Validated {
    let Composed { text, capabilities, .. } = composed;
    let module = naga::front::wgsl::parse_str(text)
        .map_err(|error| error.emit_to_string(text) + &helper_with(error.message()))?;
    let info = Validator::new(ValidationFlags::all(), *capabilities)
        .validate(&module)
        .map_err(|error| error.emit_to_string(text))?;
    Ok((module, info))
}

/// The helper files of all variants, by their names.
static HELPERS: LazyLock<BTreeMap<&str, Lib>> = LazyLock::new(|| {
    let variants = all_variants();
    variants.iter().flat_map(Variant::libs).map(|lib| (lib.name, lib)).collect()
});

/// Which helper file has the function that an error names, as a text without it lacks that file.
fn helper_with(error: &str) -> String {
    let Some(name) = error.strip_prefix("no definition in scope for identifier: `") else {
        return String::new();
    };
    let name = name.trim_end_matches('`');
    let has = |lib: &&Lib| text_after(lib.text, "fn ").any(|function| function == name);
    match HELPERS.values().find(has) {
        Some(lib) => format!(
            "{name} is in shaders/{}.wgsl, which `libs` of its kernel or `with_libs` of the variant must name\n",
            lib.name
        ),
        None => String::new(),
    }
}

/// Runs `check` on every variant; panics with what was found.
fn for_every_variant(check: impl Fn(&Composed, &Module, &ModuleInfo) -> Result<(), String> + Sync) {
    assert!(!ALL.is_empty(), "there are no kernels");
    let failures: Vec<String> = ALL
        .par_iter()
        .filter_map(|(composed, validated)| {
            let outcome = match validated {
                Ok((module, info)) => check(composed, module, info),
                Err(why) => Err(why.clone()),
            };
            outcome.err().map(|why| format!("{}:\n{why}", composed.label()))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} texts:\n{}",
        failures.len(),
        ALL.len(),
        failures[..failures.len().min(LISTED)].join("\n\n")
    );
}

#[test]
fn every_variant_validates_and_passes_the_lint() {
    for_every_variant(|composed, module, info| {
        let mut violations = lint::lint(module, info, composed.limits);
        // Where subgroups differ but the invocations of each don't, which no browser would see; none gets
        // such a kernel.
        let is_for_spirv = composed.variant.requires().element_access;
        violations.retain(|violation| !(is_for_spirv && violation.rule == lint::Rule::NonUniformSubgroup));
        let reports: Vec<String> =
            violations.iter().map(|violation| violation.report(&composed.text)).collect();
        if reports.is_empty() { Ok(()) } else { Err(reports.join("\n")) }
    });
}

#[test]
fn every_variant_is_translated_for_each_driver_that_may_be_given_it() {
    for_every_variant(|composed, module, info| {
        let variant = &composed.variant;
        let given = |language: &Language| language.never_given(variant).is_none();
        let languages = Language::ALL.into_iter().filter(given).enumerate();
        for (_, language) in languages.filter(|&(index, _)| is_chosen(variant, index, TRANSLATIONS)) {
            let text =
                language.translate(module, info).map_err(|error| format!("in {language:?}: {error}"))?;
            // naga translates a struct of subgroups' indices without saying what its members are.
            if let Language::Hlsl(_) = language
                && variant.requires().subgroups
                && !text.contains("WaveGetLaneIndex()")
            {
                return Err(format!("in {language:?}: no invocation knows its place in the subgroup"));
            }
        }
        Ok(())
    });
}

#[test]
fn every_variant_has_one_entry_point_called_main() {
    for_every_variant(|_, module, _| {
        let names: Vec<&str> = module.entry_points.iter().map(|entry| entry.name.as_str()).collect();
        if names == ["main"] { Ok(()) } else { Err(format!("its entry points are {names:?}")) }
    });
}

#[test]
fn parameters_are_laid_out_as_in_rust() {
    for_every_variant(|composed, module, _| {
        let fields = composed.variant.source().params.iter().filter(|field| field.name != PADDING);
        let expected: Vec<_> =
            fields.map(|field| (field.name.to_owned(), field.offset, field.size)).collect();
        let found = parameters(module)?;
        if found == expected { Ok(()) } else { Err(format!("Params is {found:?}\nin Rust {expected:?}")) }
    });
}

/// Name, offset and bytes of the members of the variable `params`, empty if there is none.
fn parameters(module: &Module) -> Result<Vec<(String, usize, usize)>, String> {
    let Some((_, variable)) =
        module.global_variables.iter().find(|(_, variable)| variable.name.as_deref() == Some("params"))
    else {
        return Ok(Vec::new());
    };
    if !matches!(variable.space, AddressSpace::Uniform | AddressSpace::Immediate) {
        return Err(format!("params is in {:?}", variable.space));
    }
    let TypeInner::Struct { members, .. } = &module.types[variable.ty].inner else {
        return Err("params is no structure".to_owned());
    };
    let fields = members.iter().map(|member| {
        let size = module.types[member.ty].inner.size(module.to_ctx()) as usize;
        (member.name.clone().unwrap_or_default(), member.offset as usize, size)
    });
    Ok(fields.collect())
}

#[test]
fn bindings_are_numbered_reads_first() {
    for_every_variant(|composed, module, _| {
        let source = composed.variant.source();
        let mut found: Vec<(u32, bool)> = module
            .global_variables
            .iter()
            .filter_map(|(_, variable)| match (variable.space, variable.binding) {
                (AddressSpace::Storage { access }, Some(ResourceBinding { group: 0, binding })) => {
                    Some((binding, access.contains(StorageAccess::STORE)))
                }
                _ => None,
            })
            .collect();
        found.sort_unstable();
        let [reads, writes] = [source.reads, source.writes].map(|operands| operands.len() as u32);
        let expected: Vec<(u32, bool)> =
            (0..reads + writes).map(|binding| (binding, binding >= reads)).collect();
        if found == expected {
            Ok(())
        } else {
            Err(format!("(binding, written) are {found:?}, in Rust {expected:?}"))
        }
    });
}

/// A device may have room for no more than eight buffers. Where a kernel binds more, it is asked first.
#[test]
fn few_kernels_bind_more_than_every_device_has_room_for() {
    for variant in all_variants() {
        let has = |name: &str| variant.libs().iter().any(|lib| lib.name == name);
        let buffers = variant.requires().storage_buffers;
        let most = match variant.kernel() {
            _ if has("lib/quant_results_appended") => 13,
            _ if has("lib/quant_results_qk_norm") => 16,
            _ if has("lib/quant_expert_biases") => 9,
            "tokens/router" => 9,
            _ => Limits::PORTABLE.storage_buffers,
        };
        assert!(buffers <= most, "{variant:?} binds {buffers} buffers");
    }
}

#[test]
fn no_two_variants_are_the_same_text() {
    let mut seen = HashSet::new();
    for (composed, _) in ALL.iter() {
        let label = composed.label();
        let key = (&composed.text, composed.capabilities.bits());
        assert!(seen.insert(key), "{label} is composed twice");
    }
}

#[test]
fn an_error_names_the_files_own_line() {
    for (composed, _) in ALL.iter() {
        let own = composed.variant.source().text;
        let enables = ["enable f16; ", "enable wgpu_cooperative_matrix; "];
        let text = enables
            .iter()
            .fold(composed.text.as_str(), |text, enable| text.strip_prefix(enable).unwrap_or(text));
        assert!(text.starts_with(own), "{}: the text doesn't begin with the file", composed.label());
    }
}

#[test]
fn every_file_in_shaders_is_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shaders");
    let mut on_disk = BTreeSet::new();
    collect(&root, &root, &mut on_disk);
    let mut used = BTreeSet::new();
    for variant in all_variants() {
        let source = variant.source();
        used.insert(source.name.to_owned());
        used.extend(variant.libs().iter().map(|lib| lib.name.to_owned()));
    }
    let unused: Vec<_> = on_disk.difference(&used).collect();
    assert!(unused.is_empty(), "no variant of all_variants (backend-webgpu) is of {unused:?}");
    let missing: Vec<_> = used.difference(&on_disk).collect();
    assert!(missing.is_empty(), "not in shaders/: {missing:?}");
}

#[test]
fn helper_files_come_once_and_after_what_they_need() {
    for variant in all_variants() {
        let libs = variant.libs();
        let mut seen = HashSet::new();
        for lib in &libs {
            for need in lib.needs {
                assert!(seen.contains(need.name), "{variant:?}: {} comes before {}", lib.name, need.name);
            }
            assert!(seen.insert(lib.name), "{variant:?}: {} comes twice", lib.name);
        }
    }
}

/// Constants that only decide about what Rust writes into a kernel's text.
const READ_IN_RUST: [(&str, &str); 3] = [
    ("conv/implicit_gemm", "planes"),
    ("gemm/cooperative", "in_registers"),
    ("quant/cooperative", "in_registers"),
];

#[test]
fn every_constant_is_used() {
    let mut unused: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut seen = HashSet::new();
    for (composed, _) in ALL.iter() {
        let source = composed.variant.source();
        // Where an input of an element-wise kernel comes from decides about the text that Rust writes.
        let names = source.constants.iter().copied().filter(|name| !name.ends_with("_from"));
        let left = unused.entry(source.name).or_default();
        left.extend(names.filter(|&name| seen.insert((source.name, name))));
        left.retain(|&name| {
            let word = name.to_ascii_uppercase();
            // Once it is declared.
            let times = words_of(&composed.text).filter(|&it| it == word).take(2).count();
            times < 2 && !READ_IN_RUST.contains(&(source.name, name))
        });
    }
    unused.retain(|_, names| !names.is_empty());
    assert!(unused.is_empty(), "constants that no text of the kernel uses: {unused:?}");
}

/// Functions that one helper file alone has, and no kernel in a way of its own, are called by helper files that need
/// this one.
#[test]
fn helper_files_need_what_they_call() {
    let variants = all_variants();
    let functions = |text| -> HashSet<&str> { text_after(text, "fn ").collect() };
    let own: HashSet<&str> = variants.iter().flat_map(|variant| functions(variant.source().text)).collect();
    let mut definitions: HashMap<&str, Vec<&str>> = HashMap::new();
    for (&name, lib) in HELPERS.iter() {
        for function in functions(lib.text) {
            definitions.entry(function).or_default().push(name);
        }
    }
    for (&name, lib) in HELPERS.iter() {
        let needed = with_needs(*lib);
        for line in lib.text.lines() {
            let code = line.split("//").next().unwrap_or_default();
            for (at, _) in code.match_indices('(') {
                let called = words_of(&code[..at]).last().filter(|word| code[..at].ends_with(word));
                let defined =
                    called.filter(|called| !own.contains(called)).and_then(|it| definitions.get(it));
                if let Some([only]) = defined.map(Vec::as_slice) {
                    let called = called.unwrap_or_default();
                    let libs = "kernels/libs.rs";
                    assert!(
                        needed.contains(only),
                        "{name} calls {called} of {only}, which it doesn't need in {libs}"
                    );
                }
            }
        }
    }
}

/// The names of a helper file and of all that it needs.
fn with_needs(lib: Lib) -> HashSet<&'static str> {
    let mut names = HashSet::from([lib.name]);
    names.extend(lib.needs.iter().flat_map(|&need| with_needs(need)));
    names
}

/// The words that follow this text.
fn text_after<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(|after| words_of(after).next())
}

/// Names, keywords and numbers of WGSL.
fn words_of(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The names of the .wgsl files below `folder`, relative to `root`, without the extension.
fn collect(root: &Path, folder: &Path, names: &mut BTreeSet<String>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            collect(root, &path, names);
        } else if path.extension().is_some_and(|extension| extension == "wgsl") {
            let relative: PathBuf = path.strip_prefix(root).unwrap().with_extension("");
            names.insert(relative.to_string_lossy().replace('\\', "/"));
        }
    }
}
