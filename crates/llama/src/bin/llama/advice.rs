//! What takes the place of llama.cpp's options that this command doesn't have.

use Advice::{For, Leave, Missing};

/// What takes the place of an option.
#[derive(Clone, Copy)]
enum Advice {
    /// Something else.
    For(&'static str),
    /// Nothing: what it asks for is always so, or isn't there to be chosen.
    Leave(&'static str),
    /// Nothing, and what it asks for is missing.
    Missing(&'static str),
}

/// Options, several of them separated by spaces.
const ADVICE: &[(&str, Advice)] = &[
    (
        "-ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -nkvo",
        For("a model is on one device as a whole, which --backend chooses; --backend cpu computes on \
            the CPU"),
    ),
    (
        "--no-kv-offload -kvo --kv-offload -ot --override-tensor -cmoe --cpu-moe -ncmoe \
         --n-cpu-moe -nopo --no-op-offload --op-offload --no-host -rpc --rpc",
        For("a model is on one device as a whole, which --backend chooses"),
    ),
    ("-dev --device -mg --main-gpu", For("--backend chooses a device; `llama devices` lists them")),
    ("--list-devices", For("`llama devices` lists them")),
    (
        "-t --threads -tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio \
         --poll --numa",
        Leave("--backend cpu computes on all cores that the process may use"),
    ),
    ("-fa --flash-attn", Leave("the backend chooses a kernel for attention")),
    ("-b --batch-size -ub --ubatch-size", Leave("prompts are read 512 tokens at a time")),
    ("-np --parallel", Leave("one text is made at a time")),
    ("--mlock --mmap --no-mmap -mmp -dio --direct-io", Leave("a file is mapped, and read once")),
    ("-nr --no-repack --repack", Leave("the backend chooses how weights are laid out")),
    ("--check-tensors", Leave("logits that aren't finite, as damaged weights make them, are an error")),
    (
        "-fit --fit -fitt --fit-target -fitc --fit-ctx",
        Leave("what there is no room for is an error; a smaller --ctx takes less"),
    ),
    ("-cnv --conversation -i --interactive -if --interactive-first", For("`llama chat` is the conversation")),
    (
        "-no-cnv --no-conversation",
        Leave("`llama run` applies no chat template, and `llama chat` always applies the file's"),
    ),
    ("-st --single-turn", For("`llama chat` ends with its standard input, such as `echo MESSAGE |`")),
    (
        "-sys --system-prompt --system -sysf --system-prompt-file",
        For("`llama run` applies no chat template; `llama chat --system TEXT` does"),
    ),
    ("--jinja --no-jinja", Leave("`llama chat` always applies the file's chat template")),
    (
        "--chat-template --chat-template-file --chat-template-kwargs --in-prefix --in-prefix-bos \
         --in-suffix",
        Leave("`llama chat` applies the file's chat template"),
    ),
    (
        "--reasoning-format --reasoning-budget -rea --reasoning",
        Leave("what a model writes is shown as it is"),
    ),
    ("-mli --multiline-input", Leave("each line is a message; -f FILE of `llama run` reads several lines")),
    ("-co --color --simple-io", Leave("texts are shown as they come, in one colour")),
    ("-sp --special", Missing("control tokens aren't shown")),
    ("-r --reverse-prompt --ignore-eos", Missing("a text ends where the model ends it, or after -n tokens")),
    (
        "-hf -hfr --hf-repo -hff --hf-file -mu --model-url -dr --docker-repo",
        For("nothing is downloaded; give the path of a GGUF file"),
    ),
    ("-hft --hf-token --offline", Leave("nothing is downloaded")),
    (
        "-e --escape --no-escape",
        Leave("backslashes are characters as others are; -f FILE reads a text of several lines"),
    ),
    ("-bf --binary-file", For("-f FILE reads a text in UTF-8")),
    ("--no-display-prompt", For("--json tells what the model wrote apart from the prompt")),
    ("--repeat-last-n", Leave("--repeat-penalty looks at the last 64 tokens")),
    (
        "--samplers --sampling-seq --sampler-seq",
        Leave(
            "the order is repetition penalty, top-k, temperature, top-p, min-p; each has an option \
            that leaves it out",
        ),
    ),
    (
        "--presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length \
         --dry-penalty-last-n --dry-sequence-breaker",
        For("--repeat-penalty is the one penalty that there is"),
    ),
    (
        "--mirostat --mirostat-lr --mirostat-ent --typical --typical-p --top-nsigma --top-n-sigma \
         --xtc-probability --xtc-threshold --adaptive-target --adaptive-decay",
        For("--top-k, --top-p and --min-p choose the tokens that are drawn from"),
    ),
    ("--dynatemp-range --dynatemp-exp", For("--temp is the same for all tokens")),
    (
        "-l --logit-bias --grammar --grammar-file -j --json-schema -jf --json-schema-file",
        Missing("no token is forced or forbidden"),
    ),
    (
        "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx \
         --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
        Leave("rotations are scaled as the file says"),
    ),
    ("--override-kv", Missing("a file's metadata are taken as they are")),
    ("--lora --lora-scaled", Missing("a model is one file; merge an adapter into it")),
    ("--control-vector --control-vector-scaled", Missing("layers compute what the file says")),
    ("-mm --mmproj --image --audio", Missing("models read texts alone")),
    ("-md --model-draft --draft --draft-max --draft-min", Missing("no second model drafts tokens")),
    ("--prompt-cache --prompt-cache-all --prompt-cache-ro", Missing("a prompt is read anew each time")),
    (
        "--keep --context-shift --no-context-shift --swa-full",
        Leave("a text ends where the context is full; a chat forgets its oldest turns, but not --system"),
    ),
    ("-pg", For("`llama bench` measures -p N and -n N apart; -n N -d M decodes behind M tokens")),
    ("--chunks", For("all of the text is scored; give a shorter one")),
    ("--ppl-stride --hellaswag --winogrande --multiple-choice", Missing("a text is scored as a whole")),
    (
        "--kl-divergence --kl-divergence-base --save-all-logits --all-logits",
        Missing("no probabilities are written or read"),
    ),
    ("-o --output -oe --output-err", For("--json prints a document")),
    ("--log-disable", For("the environment variable RUST_LOG=off logs nothing")),
    ("-v --verbose -lv --verbosity --log-file", For("the environment variable RUST_LOG=debug logs more")),
    ("--verbose-prompt", For("--json tells how many tokens the prompt has")),
    ("--no-warmup --warmup", Leave("kernels are compiled before they are measured")),
    (
        "--perf --no-perf --show-timings --progress",
        Leave("speed and progress are told on the standard error"),
    ),
];

/// What a chat's options for a first message are told.
const MESSAGES: &str =
    "messages are the lines of the standard input; --system TEXT is what the model is told before them";

/// What to give in place of an option that a task doesn't have; `None` for one that isn't llama.cpp's either.
pub(crate) fn of(name: &str, task: &str) -> Option<String> {
    match (name, task) {
        ("-p" | "--prompt" | "-f" | "--file", "chat") => return Some(MESSAGES.to_owned()),
        ("-sysf" | "--system-prompt-file", "chat") => {
            return Some("--system TEXT takes the text itself".to_owned());
        }
        ("-p" | "--prompt", "perplexity") => {
            return Some("give a file, or - for the standard input".to_owned());
        }
        ("-np" | "-npl" | "--n-parallel", "bench") => {
            return Some("--parallel N decodes N sequences together".to_owned());
        }
        _ => {}
    }
    let find = |name: &str| ADVICE.iter().find(|(names, _)| names.split(' ').any(|one| one == name));
    // As in -ngl99, and in --n_gpu_layers.
    let other = || match name.strip_prefix("--") {
        Some(long) => format!("--{}", long.replace('_', "-")),
        None => name.trim_end_matches(|end: char| end.is_ascii_digit() || end == ',').to_owned(),
    };
    let (_, advice) = find(name).or_else(|| find(&other()))?;
    Some(match advice {
        For(advice) => (*advice).to_owned(),
        Leave(reason) => format!("leave it out: {reason}"),
        Missing(reason) => format!("there is no such thing: {reason}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_is_answered_twice() {
        let names: Vec<_> = ADVICE.iter().flat_map(|(names, _)| names.split(' ')).collect();
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    }
}
