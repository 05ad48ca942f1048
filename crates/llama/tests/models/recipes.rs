//! What random models of each architecture compute.

use backend_api::DType;

use crate::oracle::{Experts, Recipe, Yarn};

/// The recipe of an architecture, with rows of `hidden` numbers: 256 for formats with blocks as long.
pub(crate) fn recipe(architecture: &'static str, hidden: usize) -> Recipe {
    let base = Recipe {
        architecture,
        hidden,
        inner: 2 * hidden,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: hidden / 4,
        vocabulary: 67,
        interleaved: false,
        rotary_dim: hidden / 4,
        rope_base: 10_000.0,
        window_rope_base: 10_000.0,
        rope_divisor: 1.0,
        rope_factors: Vec::new(),
        yarn: None,
        rotates: |_| true,
        window: |_| None,
        softcaps: [0.0, 0.0],
        gelu: false,
        embedding_scale: 1.0,
        attention_scale: None,
        temperature: 0.0,
        residual_scale: 1.0,
        logit_scale: 1.0,
        biases: false,
        output_biases: false,
        sinks: false,
        qk_norm: false,
        norms_rotated: false,
        whole_qk_norm: false,
        pre_norms: true,
        layer_norms: false,
        parallel: false,
        ffn_norm: "ffn_norm",
        post_norms: false,
        fused: false,
        tied: false,
        experts: None,
        cache: DType::F32.into(),
    };
    let gemma = Recipe {
        gelu: true,
        post_norms: true,
        tied: true,
        embedding_scale: (hidden as f64).sqrt(),
        ..base.clone()
    };
    let experts = Experts {
        count: 5,
        used: 2,
        inner: hidden,
        shared: 0,
        share: false,
        normalised: true,
        scale: 1.0,
        clamped: false,
    };
    let yarn = Yarn {
        factor: 32.0,
        original: 512,
        turns: [32.0, 1.0],
        log_multiplier: 0.0,
        is_rounded: true,
        scales_windows: false,
    };
    match architecture {
        "llama3.1" => {
            let factors = (0..hidden / 8).map(|i| 1.0 + 0.5 * i as f32).collect();
            Recipe {
                architecture: "llama",
                rope_factors: factors,
                rope_base: 500_000.0,
                interleaved: true,
                ..base
            }
        }
        "qwen2" => Recipe { biases: true, tied: true, rope_base: 1e6, ..base },
        "qwen3" => {
            Recipe { qk_norm: true, rope_base: 1e6, head_dim: hidden / 2, rotary_dim: hidden / 2, ..base }
        }
        "gemma" => Recipe { post_norms: false, head_dim: hidden / 2, rotary_dim: hidden / 2, ..gemma },
        "gemma2" => {
            Recipe { softcaps: [5.0, 3.0], window: |layer| (layer % 2 == 0).then_some(WINDOW), ..gemma }
        }
        "gemma3" => Recipe {
            qk_norm: true,
            layers: 6,
            rope_base: 1e6,
            rope_divisor: 8.0,
            window: |layer| (layer % 6 < 5).then_some(WINDOW),
            ..gemma
        },
        "mixtral" => Recipe { architecture: "llama", interleaved: true, experts: Some(experts), ..base },
        "qwen2moe" => {
            let experts = Experts { used: 3, shared: 3 * hidden, share: true, normalised: false, ..experts };
            Recipe { biases: true, rope_base: 1e6, experts: Some(experts), ..base }
        }
        "qwen3moe" => {
            let experts = Experts { count: 9, used: 4, scale: 1.5, ..experts };
            Recipe { qk_norm: true, rope_base: 1e6, experts: Some(experts), ..base }
        }
        "gpt-oss" => Recipe {
            ffn_norm: "post_attention_norm",
            biases: true,
            output_biases: true,
            sinks: true,
            head_dim: 64,
            rotary_dim: 64,
            // Many turns of most pairs in few tokens.
            rope_base: 100.0,
            window_rope_base: 100.0,
            yarn: Some(Yarn { is_rounded: false, scales_windows: true, ..yarn }),
            window: |layer| (layer % 2 == 0).then_some(WINDOW),
            experts: Some(Experts { count: 9, used: 4, clamped: true, ..experts }),
            ..base
        },
        "granite" => Recipe {
            interleaved: true,
            tied: true,
            output_biases: true,
            embedding_scale: 12.0,
            attention_scale: Some(0.3),
            residual_scale: 0.22,
            logit_scale: 3.0,
            ..base
        },
        "granitemoe" => Recipe {
            architecture: "granitemoe",
            output_biases: false,
            experts: Some(Experts { count: 9, used: 4, inner: 2 * hidden, ..experts }),
            ..recipe("granite", hidden)
        },
        "granitemoe_shared" => Recipe {
            experts: Some(Experts { inner: 2 * hidden, shared: 3 * hidden, ..experts }),
            ..recipe("granitemoe", hidden)
        },
        "olmo2" => Recipe { pre_norms: false, post_norms: true, whole_qk_norm: true, rope_base: 5e5, ..base },
        "olmo3" => Recipe {
            layers: 5,
            rope_base: 1000.0,
            window_rope_base: 1000.0,
            yarn: Some(Yarn { factor: 8.0, ..yarn }),
            window: |layer| (layer % 4 < 3).then_some(WINDOW),
            ..recipe("olmo2", hidden)
        },
        "mistral3" => Recipe {
            interleaved: true,
            rope_base: 1000.0,
            // A text has three contexts.
            yarn: Some(Yarn { original: 6, turns: [0.3, 0.02], log_multiplier: 0.5, ..yarn }),
            temperature: 0.4,
            ..base
        },
        "ernie4_5" => Recipe { interleaved: true, rope_base: 5e5, ..base },
        "seed_oss" => Recipe {
            ffn_norm: "post_attention_norm",
            biases: true,
            head_dim: hidden / 2,
            rotary_dim: hidden / 2,
            rope_base: 1e6,
            ..base
        },
        "granite_nope" => {
            Recipe { rotates: |_| false, embedding_scale: 1.0, tied: false, ..recipe("granite", hidden) }
        }
        "smollm3" => {
            Recipe { layers: 5, interleaved: true, rope_base: 1e6, rotates: |layer| layer % 4 < 3, ..base }
        }
        "glm4" => Recipe {
            interleaved: true,
            rotary_dim: hidden / 8,
            biases: true,
            fused: true,
            post_norms: true,
            ..base
        },
        "exaone4" => Recipe {
            layers: 5,
            pre_norms: false,
            post_norms: true,
            qk_norm: true,
            rope_base: 1e6,
            window_rope_base: 1e6,
            rope_factors: (0..hidden / 8).map(|i| 1.0 + 0.5 * i as f32).collect(),
            window: |layer| (layer % 4 < 3).then_some(WINDOW),
            rotates: |layer| layer % 4 < 3,
            ..base
        },
        "exaone4_full" => {
            Recipe { tied: true, window: |_| None, rotates: |_| true, ..recipe("exaone4", hidden) }
        }
        "hunyuan-dense" => {
            let head_dim = hidden / 2;
            let norms = Recipe { qk_norm: true, norms_rotated: true, tied: true, ..base };
            Recipe { rope_base: 11_158_840.0, head_dim, rotary_dim: head_dim, ..norms }
        }
        "command-r" => Recipe {
            interleaved: true,
            layer_norms: true,
            parallel: true,
            tied: true,
            rope_base: 8e6,
            logit_scale: 4.0,
            ..base
        },
        "cohere2" => Recipe {
            architecture,
            layers: 5,
            rope_base: 50_000.0,
            window_rope_base: 50_000.0,
            window: |layer| (layer % 4 < 3).then_some(WINDOW),
            rotates: |layer| layer % 4 < 3,
            ..recipe("command-r", hidden)
        },
        "phi3" => Recipe { fused: true, rotary_dim: hidden / 8, ..base },
        _ => Recipe { interleaved: true, ..base },
    }
}

/// Keys that layers with a window see.
const WINDOW: usize = 5;
