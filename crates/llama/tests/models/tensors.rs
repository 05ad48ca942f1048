//! What files must have, and what they mustn't.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use backend_api::ComputeBackend;
use candle_core::quantized::GgmlDType;
use llama::gguf::{Gguf, Index};
use llama::{Error, Model, Precision};

use crate::random::RandomModel;
use crate::recipes::recipe;

/// Why a file isn't loaded, whole or piece by piece.
fn refused(backend: &Arc<dyn ComputeBackend>, file: &[u8]) -> anyhow::Result<[Option<Error>; 2]> {
    let whole = Model::load(backend, &Gguf::parse(file)?, |_, _| ());
    let pieces = pollster::block_on(async {
        let index = Index::read(file).await?;
        Model::load_from(backend, file, &index, Precision::F32, |_, _| ()).await
    });
    Ok([whole.err(), pieces.err()])
}

/// Fails unless a file without `blk.1.PART` is refused for that.
fn is_required(backend: &Arc<dyn ComputeBackend>, model: &RandomModel, part: &str) -> anyhow::Result<()> {
    let name = format!("blk.1.{part}");
    // Names of one length, so that the rest of the file stays.
    let other = name.replacen("blk", "BLK", 1);
    let mut file = model.file.clone();
    let at = file.windows(name.len()).position(|bytes| bytes == name.as_bytes()).context("no such tensor")?;
    file[at..at + name.len()].copy_from_slice(other.as_bytes());
    for refused in refused(backend, &file)? {
        match refused {
            Some(Error::MissingTensor { name: missing }) if missing == name => {}
            other => anyhow::bail!("{} without {name}: {other:?}", model.recipe.architecture),
        }
    }
    Ok(())
}

/// Without any tensor of a layer, a file of gpt-oss isn't taken for another computation, nor are those of other
/// architectures without their norms.
pub(crate) fn missing_tensors_are_named(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    let model = RandomModel::new(recipe("gpt-oss", 64), GgmlDType::Q8_0, None)?;
    let mut parts: Vec<&str> = model.weights.keys().filter_map(|name| name.strip_prefix("blk.1.")).collect();
    parts.sort_unstable();
    ensure!(parts.len() == 19, "{parts:?}");
    parts.iter().try_for_each(|part| is_required(backend, &model, part))?;

    let (heads, after) = (["attn_q_norm", "attn_k_norm"], ["post_attention_norm", "post_ffw_norm"]);
    for (architecture, norms) in [
        ("qwen3", heads.to_vec()),
        ("qwen3moe", heads.to_vec()),
        ("gemma2", after.to_vec()),
        ("gemma3", [heads, after].concat()),
        ("olmo2", [heads, after].concat()),
        ("exaone4", [heads, after].concat()),
        ("hunyuan-dense", heads.to_vec()),
        ("cohere2", vec!["attn_norm"]),
        ("seed_oss", vec!["post_attention_norm"]),
        ("glm4", [after.to_vec(), vec!["attn_norm", "ffn_norm"]].concat()),
    ] {
        let model = RandomModel::new(recipe(architecture, 64), GgmlDType::Q8_0, None)?;
        for norm in norms {
            is_required(backend, &model, &format!("{norm}.weight"))?;
        }
    }
    Ok(())
}

/// A tensor that nothing computes with would make the model another one than the file's.
pub(crate) fn other_tensors_are_refused(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    let with = |architecture, name: &str| {
        RandomModel::with(recipe(architecture, 64), GgmlDType::Q8_0, None, &[(name, 64)])
    };
    let check = |file: &[u8], name: &str| -> anyhow::Result<()> {
        for refused in refused(backend, file)? {
            match refused {
                Some(Error::Tensor { name: other, .. }) if other == name => {}
                other => anyhow::bail!("with {name}: {other:?}"),
            }
        }
        Ok(())
    };
    for (architecture, name) in [
        ("llama", "output.bias"),
        ("llama", "dense.0.weight"),
        ("llama", "blk.0.attn_norm.bias"),
        ("llama", "blk.1.attn_k_norm.weight"),
        ("llama", "blk.1.ffn_gate_shexp.weight"),
        ("llama", "blk.2.attn_norm.weight"),
        ("mixtral", "blk.0.post_ffw_norm.weight"),
        ("phi3", "blk.0.attn_q.weight"),
        ("granite", "blk.0.post_ffw_norm.weight"),
        ("granitemoe", "blk.1.ffn_gate_inp_shexp.weight"),
        ("granitemoe", "blk.1.ffn_up_shexp.weight"),
        ("olmo2", "blk.0.attn_norm.weight"),
        ("exaone4", "blk.0.ffn_norm.weight"),
        ("cohere2", "blk.0.ffn_norm.weight"),
        ("cohere2", "blk.1.post_attention_norm.weight"),
        ("command-r", "blk.1.attn_q_norm.weight"),
        ("seed_oss", "blk.0.ffn_norm.weight"),
    ] {
        check(&with(architecture, name)?.file, name)?;
    }
    // Fewer layers than there are.
    let mut file = RandomModel::new(recipe("llama", 64), GgmlDType::Q8_0, None)?.file;
    let key = b"llama.block_count";
    let at = file.windows(key.len()).position(|bytes| bytes == key).context("no such key")?;
    // Behind the type of the value, four bytes.
    file[at + key.len() + 4] = 1;
    check(&file, "blk.1.attn_k.weight")?;

    for name in ["blk.0.attn_rot_embd", "mm.input_projection.weight", "v.blk.0.ln1.weight"] {
        let refused = refused(backend, &with("gemma3", name)?.file)?;
        ensure!(refused.iter().all(Option::is_none), "with {name}: {refused:?}");
    }
    Ok(())
}
