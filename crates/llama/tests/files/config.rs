//! What the metadata says of an architecture, or what it is refused for.

use llama::gguf::Gguf;
use llama::{Config, Error, RopeScaling};

use crate::written::{text, valid, with};

#[test]
fn other_models_are_refused_by_key() {
    let replaced = |from: &str, to: &str| {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let mut bytes = valid();
        let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    let key = |bytes: &[u8]| match Config::from_gguf(&Gguf::parse(bytes).unwrap()) {
        Err(Error::Value { key, .. } | Error::MissingKey { key }) => key,
        other => panic!("{other:?}"),
    };
    assert_eq!(key(&replaced("llama", "bloom")), "general.architecture");
    assert_eq!(key(&replaced("block_count", "block_cound")), "llama.block_count");
    assert_eq!(
        key(&replaced("head_count\x04\0\0\0\x02", "head_count\x04\0\0\0\0")),
        "llama.attention.head_count"
    );
    let parts = [b"split.count".as_slice(), &2u32.to_le_bytes()].concat();
    let mut part = valid();
    let at = part.windows(parts.len()).position(|window| window == parts).unwrap() + parts.len();
    part[at] = 3;
    assert_eq!(key(&part), "split.count");
    let epsilon = |number: f32| {
        let mut bytes = valid();
        let from = b"layer_norm_rms_epsilon";
        let at = bytes.windows(from.len()).position(|window| window == from).unwrap() + from.len() + 4;
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    for wrong in [-1.0, f32::NAN, f32::INFINITY] {
        assert_eq!(key(&epsilon(wrong)), "llama.attention.layer_norm_rms_epsilon", "{wrong}");
    }
    assert_eq!(Config::from_gguf(&Gguf::parse(&epsilon(0.0)).unwrap()).unwrap().norm_eps, 0.0);
}

#[test]
fn scaling_of_rotations_is_computed_or_refused() {
    let scaling_of = |architecture: &str, more: &[(&str, u32, &[u8])]| {
        let bytes = with(architecture, more);
        Config::from_gguf(&Gguf::parse(&bytes).unwrap()).map(|config| config.rope.scaling).ok()
    };
    let scaling = |more: &[(&str, u32, &[u8])]| scaling_of("llama", more);
    let kind = |name: &str| {
        let mut bytes = Vec::new();
        text(&mut bytes, name);
        bytes
    };
    let factor = |factor: f32| factor.to_le_bytes();
    let [one, four] = [factor(1.0), factor(4.0)];
    assert_eq!(scaling(&[]), Some(RopeScaling::None));
    assert_eq!(scaling(&[("rope.scaling.factor", 6, &four)]), Some(RopeScaling::Linear(4.0)));
    assert_eq!(scaling(&[("rope.scaling.factor", 6, &one)]), Some(RopeScaling::None));
    assert_eq!(scaling(&[("rope.scale_linear", 6, &four)]), Some(RopeScaling::Linear(4.0)));
    let typed =
        |name: &str| scaling(&[("rope.scaling.type", 8, &kind(name)), ("rope.scaling.factor", 6, &four)]);
    assert_eq!(typed("none"), Some(RopeScaling::None));
    assert_eq!(typed("linear"), Some(RopeScaling::Linear(4.0)));
    assert_eq!(typed("yarn"), None, "without the original context");
    assert_eq!(typed("llama3"), None);
    assert_eq!(typed("longrope"), None, "without its factors");
    let (kind, original) = (kind("yarn"), 4096u32.to_le_bytes());
    let yarn_of = |architecture: &str, more: &[(&str, u32, &[u8])]| {
        let keys: [(&str, u32, &[u8]); 3] = [
            ("rope.scaling.type", 8, &kind),
            ("rope.scaling.factor", 6, &four),
            ("rope.scaling.original_context_length", 4, &original),
        ];
        scaling_of(architecture, &[&keys, more].concat())
    };
    let yarn = |more: &[(&str, u32, &[u8])]| yarn_of("llama", more);
    let Some(RopeScaling::Yarn { factors, magnitude }) = yarn(&[]) else { panic!("no YaRN") };
    // Of 8 pairs, 2.6 turns 32 times and 5.6 once: the range is from 2 to 6.
    let expected = [1.0, 1.0, 1.0, 1.0 / 0.8125, 1.6, 1.0 / 0.4375, 4.0, 4.0];
    assert!(factors.iter().zip(expected).all(|(got, want)| (got - want).abs() < 1e-12), "{factors:?}");
    assert!((magnitude - (1.0 + 0.1 * 4f64.ln())).abs() < 1e-12, "{magnitude}");
    let Some(RopeScaling::Yarn { magnitude: scaled, .. }) = yarn(&[("rope.scaling.attn_factor", 6, &four)])
    else {
        panic!("no YaRN")
    };
    assert!((scaled - 4.0 * magnitude).abs() < 1e-12, "{scaled}");
    let divided = |multiplier: f32| {
        yarn_of("mistral3", &[("rope.scaling.yarn_log_multiplier", 6, &multiplier.to_le_bytes())])
    };
    // Of equal factors of the logarithm, the magnitude is 1.
    let Some(RopeScaling::Yarn { magnitude, .. }) = divided(1.0) else { panic!("no YaRN") };
    assert!((magnitude - 1.0).abs() < 1e-12, "{magnitude}");
    for wrong in [-1.0, f32::NAN, f32::INFINITY] {
        assert_eq!(divided(wrong), None, "{wrong}");
    }
    for key in ["yarn_log_multiplier", "yarn_ext_factor"] {
        assert_eq!(yarn(&[(&format!("rope.scaling.{key}"), 6, &four)]), None, "{key}");
    }
    assert_eq!(scaling(&[("rope.scaling.factor", 6, &factor(-1.0))]), None);
    assert_eq!(scaling(&[("rope.scaling.attn_factor", 6, &four)]), None);
}

#[test]
fn windows_that_a_file_leaves_out() {
    let window = |architecture: &str, more: &[(&str, u32, &[u8])]| {
        let bytes = with(architecture, more);
        Config::from_gguf(&Gguf::parse(&bytes).unwrap()).map(|config| config.window).ok()
    };
    let given = [("attention.sliding_window", 4, &512u32.to_le_bytes()[..])];
    assert_eq!(window("llama", &[]), Some(None));
    assert_eq!(window("gemma2", &[]), Some(Some(4096)));
    assert_eq!(window("gemma2", &given), Some(Some(512)));
    let base = ("rope.freq_base", 6, &1e6f32.to_le_bytes()[..]);
    assert_eq!(window("gemma3", &[base]), None);
    assert_eq!(window("gemma3", &[base, given[0]]), Some(Some(512)));
    let four = 4u32.to_le_bytes();
    let experts =
        ["expert_count", "expert_used_count", "expert_feed_forward_length"].map(|key| (key, 4, &four[..]));
    assert_eq!(window("gpt-oss", &experts), None);
    assert_eq!(window("gpt-oss", &given), None, "without experts");
    assert_eq!(window("gpt-oss", &[&experts[..], &given].concat()), Some(Some(512)));
}

#[test]
fn bases_of_gemma_3_are_those_of_the_file() {
    let window = ("attention.sliding_window", 4, &512u32.to_le_bytes()[..]);
    let of = |architecture: &str, more: &[(&str, u32, &[u8])]| {
        let bytes = with(architecture, &[&[window], more].concat());
        Config::from_gguf(&Gguf::parse(&bytes).unwrap())
            .map(|config| (config.rope.base, config.rope.window_base))
    };
    let [million, usual, other] = [1e6f32, 1e4, 5e4].map(f32::to_le_bytes);
    let base = ("rope.freq_base", 6, &million[..]);
    assert_eq!(of("gemma3", &[base]).unwrap(), (1e6, Some(1e4)));
    let ollama = [("rope.global.freq_base", 6, &million[..]), ("rope.local.freq_base", 6, &usual[..])];
    assert_eq!(of("gemma3", &ollama).unwrap(), (1e6, Some(1e4)));
    assert_eq!(of("gemma3", &[base, ("rope.freq_base_swa", 6, &other)]).unwrap(), (1e6, Some(5e4)));
    let missing = of("gemma3", &[]).unwrap_err();
    assert!(matches!(&missing, Error::MissingKey { key } if key == "gemma3.rope.freq_base"), "{missing}");
    // Other architectures have one base.
    assert_eq!(of("gemma2", &[base, ("rope.freq_base_swa", 6, &million)]).unwrap(), (1e6, None));
    assert!(of("gemma2", &[base, ("rope.freq_base_swa", 6, &usual)]).is_err());
}

#[test]
fn other_patterns_of_windows_and_of_attention_are_refused() {
    let config = |architecture: &str, more: &[(&str, u32, &[u8])]| {
        let base = ("rope.freq_base", 6, &1e6f32.to_le_bytes()[..]);
        let bytes = with(architecture, &[&[base], more].concat());
        Config::from_gguf(&Gguf::parse(&bytes).unwrap()).is_ok()
    };
    let window = ("attention.sliding_window", 4, &512u32.to_le_bytes()[..]);
    let number = |pattern: u32| ("attention.sliding_window_pattern", 4, pattern.to_le_bytes());
    for (architecture, known) in [("gemma3", 6), ("gemma2", 2), ("llama", 1)] {
        for pattern in [1, 2, 6, 0] {
            let (key, kind, bytes) = number(pattern);
            let taken = config(architecture, &[window, (key, kind, &bytes)]);
            assert_eq!(taken, pattern == known, "{architecture} with a pattern of {pattern}");
        }
    }
    let flags = |flags: &[u8], kind: u32| {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((flags.len() as u64).to_le_bytes());
        bytes.extend(flags);
        bytes
    };
    let listed = |architecture, list: &[u8], kind, more: &[(&str, u32, &[u8])]| {
        let list = flags(list, kind);
        config(architecture, &[more, &[("attention.sliding_window_pattern", 9, &list[..])]].concat())
    };
    assert!(listed("gemma3", &[1], 7, &[window]));
    assert!(!listed("gemma3", &[0], 7, &[window]), "a first layer that sees all");
    assert!(!listed("gemma3", &[1, 1], 7, &[window]), "of two layers");
    assert!(!listed("gemma3", &[1], 0, &[window]), "numbers");
    assert!(listed("llama", &[0], 7, &[]));
    assert!(!listed("llama", &[1], 7, &[]), "a window of unknown size");
    assert!(config("llama", &[("attention.causal", 7, &[1])]));
    assert!(!config("llama", &[("attention.causal", 7, &[0])]));
    let exaone = |layers: u8, more: &[(&str, u32, &[u8])]| {
        let mut bytes = with("exaone4", more);
        let key = b"exaone4.block_count";
        let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4;
        bytes[at] = layers;
        let config = Config::from_gguf(&Gguf::parse(&bytes).unwrap()).unwrap();
        [2, 3].map(|layer| (config.window_of(layer), config.rope.rotates(layer)))
    };
    assert_eq!(exaone(30, &[]), [(None, true); 2]);
    assert_eq!(exaone(64, &[]), [(Some(4096), true), (None, false)]);
    assert_eq!(exaone(64, &[window]), [(Some(512), true), (None, false)]);
    let sections = [4u32.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec(), vec![4, 0, 0, 0]].concat();
    assert!(config("glm4", &[]));
    for architecture in ["glm4", "hunyuan-dense"] {
        assert!(!config(architecture, &[("rope.dimension_sections", 9, &sections)]), "{architecture}");
    }
    assert!(!config("hunyuan-dense", &[("rope.scaling.alpha", 6, &1000f32.to_le_bytes())]));
    // A key of another type isn't one that is missing.
    let four = 4f32.to_le_bytes();
    let linear = [("rope.scaling.type", 4, &1u32.to_le_bytes()[..]), ("rope.scaling.factor", 6, &four[..])];
    assert!(!config("llama", &linear));
}

#[test]
fn factors_of_granite_are_those_of_the_file() {
    let of = |architecture: &str, more: &[(&str, f32)]| {
        let more: Vec<_> = more.iter().map(|(key, number)| (*key, number.to_le_bytes())).collect();
        let more: Vec<_> = more.iter().map(|(key, number)| (*key, 6, &number[..])).collect();
        let bytes = with(architecture, &more);
        Config::from_gguf(&Gguf::parse(&bytes).unwrap()).map(|config| {
            [config.embedding_scale, config.attention_scale, config.residual_scale, config.logit_divisor]
        })
    };
    let refused = |architecture: &str, more: &[(&str, f32)]| match of(architecture, more) {
        Err(Error::Value { key, .. } | Error::MissingKey { key }) => key,
        other => panic!("{other:?}"),
    };
    let (all, logits) = (
        [("embedding_scale", 12.0), ("attention.scale", 0.5), ("residual_scale", 0.25), ("logit_scale", 8.0)],
        ("logit_scale", 8.0),
    );
    assert_eq!(of("granite", &all).unwrap(), [12.0, 0.5, 0.25, 8.0]);
    // Heads of 16.
    assert_eq!(of("granite", &[logits]).unwrap(), [1.0, 0.25, 1.0, 8.0]);
    assert_eq!(of("granitemoe", &all).unwrap(), [12.0, 0.5, 0.25, 8.0]);
    assert_eq!(refused("granite", &[]), "granite.logit_scale");
    assert_eq!(refused("granitemoe", &[]), "granitemoe.logit_scale");
    let epsilon = ("attention.layer_norm_epsilon", 1e-5);
    assert_eq!(of("command-r", &[epsilon, ("logit_scale", 0.0625)]).unwrap(), [1.0, 0.25, 1.0, 16.0]);
    assert_eq!(refused("command-r", &[epsilon]), "command-r.logit_scale");
    assert_eq!(refused("command-r", &[logits]), format!("command-r.{}", epsilon.0));
    assert_eq!(refused("command-r", &[epsilon, logits, all[0]]), "command-r.embedding_scale");
    for (name, scale) in all {
        for wrong in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e-40, 3e38] {
            let more = if name == logits.0 { vec![(name, wrong)] } else { vec![logits, (name, wrong)] };
            assert_eq!(refused("granite", &more), format!("granite.{name}"), "{wrong}");
        }
        // Others have their own.
        assert_eq!(refused("llama", &[(name, scale)]), format!("llama.{name}"));
    }
    assert_eq!(
        of("llama", &[("attention.scale", 0.25), ("logit_scale", 1.0)]).unwrap(),
        [1.0, 0.25, 1.0, 1.0]
    );
}

#[test]
fn temperatures_of_attention_are_computed_or_refused() {
    let of = |architecture: &str, more: &[(&str, u32, &[u8])]| {
        let bytes = with(architecture, more);
        Config::from_gguf(&Gguf::parse(&bytes).unwrap()).map(|config| config.attention_temperature)
    };
    let refused = |architecture: &str, more: &[(&str, u32, &[u8])]| match of(architecture, more) {
        Err(Error::Value { key, .. }) => key,
        other => panic!("{other:?}"),
    };
    let (scale, length) = ("attention.temperature_scale", "attention.temperature_length");
    let [half, zero, minus, infinite, nan] =
        [0.5, 0.0, -0.5, f32::INFINITY, f32::NAN].map(|scale| scale.to_le_bytes());
    let [small, large] = [16u32, 64].map(u32::to_le_bytes);
    let original = ("rope.scaling.original_context_length", 4, &small[..]);
    assert_eq!(of("mistral3", &[]).unwrap(), None);
    assert_eq!(of("mistral3", &[(scale, 6, &zero)]).unwrap(), None);
    // Files have contexts of 64 tokens.
    let lengths = |more: &[(&str, u32, &[u8])]| {
        of("mistral3", more).unwrap().map(|temperature| (temperature.scale, temperature.length))
    };
    assert_eq!(lengths(&[(scale, 6, &half)]), Some((0.5, 64)));
    assert_eq!(lengths(&[(scale, 6, &half), original, (length, 4, &small)]), Some((0.5, 16)));
    assert_eq!(
        refused("mistral3", &[(scale, 6, &half), original, (length, 4, &large)]),
        format!("mistral3.{length}")
    );
    for wrong in [minus, infinite, nan] {
        assert_eq!(refused("mistral3", &[(scale, 6, &wrong)]), format!("mistral3.{scale}"));
    }
    assert_eq!(refused("llama", &[(scale, 6, &half)]), format!("llama.{scale}"));
    assert_eq!(refused("llama", &[(length, 4, &small)]), format!("llama.{length}"));

    let temperature = of("mistral3", &[(scale, 6, &half), original]).unwrap().unwrap();
    assert_eq!(temperature.factors(16), None);
    let factors = temperature.factors(40).unwrap();
    let expected = |contexts: f32| 1.0 + 0.5 * contexts.ln();
    assert_eq!(factors.len(), 40);
    for (at, contexts) in [(0, 1.0), (15, 1.0), (16, 2.0), (31, 2.0), (32, 3.0), (39, 3.0)] {
        assert!((factors[at] - expected(contexts)).abs() < 1e-6, "{at}: {}", factors[at]);
    }
}
