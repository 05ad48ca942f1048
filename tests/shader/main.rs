//! The texts of kernels as wgpu gets them: the program behind `cargo xtask shader`.
//!
//! An example, because cargo builds examples with the features that tests ask for: after the suites, all that
//! it needs is there.

mod hash;
mod order;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use backend_webgpu::variants::{Target, Variant, all_variants, compose};
use rayon::prelude::*;

/// A GPU with immediates.
const GPU: Target = Target { immediates: true, unroll: true };
/// A software adapter without immediates. Between them, the two have all that texts may hold.
const SOFTWARE: Target = Target { immediates: false, unroll: false };

/// The variants of each kernel, by its name.
type Kernels = BTreeMap<&'static str, Vec<Variant>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match answer(&arguments) {
        Ok(text) => {
            // Whoever reads it may have seen enough, as `head` has.
            _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// What is printed for a command line.
fn answer(arguments: &[String]) -> Result<String, String> {
    let (options, wanted): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|argument| argument.starts_with("--"));
    let target = match options[..] {
        [] => GPU,
        ["--software"] => SOFTWARE,
        ["--hashes"] if wanted.is_empty() => return hashes(&kernels()),
        _ => return Err(format!("unknown arguments: {}", arguments.join(" "))),
    };
    let kernels = kernels();
    let [kernel, ref variant @ ..] = wanted[..] else {
        return Ok(list(&kernels));
    };
    let names: Vec<String> = kernels.keys().map(ToString::to_string).collect();
    let variants = &kernels[names[choose("kernel", kernel, &names)?].as_str()];
    let labels: Vec<String> = variants.iter().map(ToString::to_string).collect();
    match (variant, &variants[..]) {
        ([], [only]) => Ok(compose(only, target)),
        ([], _) => Ok(lines(&labels)),
        // A label has spaces, which a shell takes for the ends of arguments.
        (words, _) => Ok(compose(&variants[choose("variant", &words.join(" "), &labels)?], target)),
    }
}

/// Every kernel with its variants, each of them once.
fn kernels() -> Kernels {
    let mut kernels = Kernels::new();
    let mut seen = HashSet::new();
    for variant in all_variants().into_iter().filter(|&variant| seen.insert(variant)) {
        kernels.entry(variant.kernel()).or_default().push(variant);
    }
    kernels
}

/// The kernels, each with the number of its variants.
fn list(kernels: &Kernels) -> String {
    kernels.iter().fold(String::new(), |mut list, (kernel, variants)| {
        _ = writeln!(list, "{kernel:32} {:5}", variants.len());
        list
    })
}

/// A hash of each variant's texts with its label, by hash.
fn hashes(kernels: &Kernels) -> Result<String, String> {
    let variants: Vec<&Variant> = kernels.values().flatten().collect();
    let line =
        |variant: &&Variant| match hash::of_texts(&[GPU, SOFTWARE].map(|target| compose(variant, target))) {
            Ok(hash) => Ok(format!("{hash} {variant:?}")),
            Err(why) => Err(format!("{variant:?}: {why}")),
        };
    let mut sorted = variants.par_iter().map(line).collect::<Result<Vec<_>, _>>()?;
    sorted.sort_unstable();
    Ok(lines(&sorted))
}

/// The place of the label that is meant: the one that reads so, else the only one that contains it.
fn choose(what: &str, wanted: &str, labels: &[String]) -> Result<usize, String> {
    if let Some(same) = labels.iter().position(|label| label == wanted) {
        return Ok(same);
    }
    let containing: Vec<usize> = (0..labels.len()).filter(|&i| labels[i].contains(wanted)).collect();
    match containing[..] {
        [only] => Ok(only),
        [] => Err(format!("no {what} is called {wanted:?}; there are:\n{}", lines(labels))),
        _ => {
            let meant: Vec<String> = containing.iter().map(|&i| labels[i].clone()).collect();
            Err(format!("{wanted:?} is a part of more than one {what}:\n{}", lines(&meant)))
        }
    }
}

fn lines(all: &[String]) -> String {
    all.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn a_label_is_chosen_by_all_of_it_or_by_what_only_it_contains() {
        let labels = ["f32", "f32 TILE=64", "f16 TILE=64"].map(str::to_owned);
        assert_eq!(choose("variant", "f32", &labels), Ok(0));
        assert_eq!(choose("variant", "f32 T", &labels), Ok(1));
        assert_eq!(choose("variant", "f16", &labels), Ok(2));
        for wanted in ["TILE", "", "i32"] {
            let why = choose("variant", wanted, &labels).unwrap_err();
            assert!(why.ends_with("f16 TILE=64\n"), "{why}");
        }
    }
}
