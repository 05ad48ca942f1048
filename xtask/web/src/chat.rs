//! The chat, as a visitor would use it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::browser::Browser;
use crate::demo::PRELUDE;
use crate::devtools::Page;
use crate::server::Server;
use crate::suites::WITHOUT_WEBGPU;

/// The longest time until the model is ready, and until an answer is there.
const PATIENCE: Duration = Duration::from_secs(180);

/// The model that the page comes with.
const MODEL: &str = "crates/llama/models/bytes-1m-q8_0.gguf";

/// Tokens of an answer.
const TOKENS: usize = 24;

/// A visitor gives a file made of `parts`, of which `model` is the shipped one.
const DROP: &str = "(async () => {
    const model = await (await fetch('bytes-1m-q8_0.gguf')).blob();
    const transfer = new DataTransfer();
    transfer.items.add(new File([PARTS], 'NAME'));
    document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true }));
})()";

/// A visitor stops the next answer at its first tokens: in the page, as an answer takes less time than a busy machine may need to
/// bring a click to it.
const STOP: &str = "new MutationObserver((_, observer) => {
    if (!(document.querySelector('#log li:last-child')?.dataset.tokens > 0)) return;
    observer.disconnect();
    document.getElementById('stop').click();
}).observe(document.getElementById('log'), { subtree: true, childList: true, attributes: true })";

#[derive(Deserialize)]
struct Report {
    text: String,
}

/// A visit: its name, the page's options, the first script of the page, and what the visitor does.
type Visit = (&'static str, &'static str, &'static str, Steps);

/// Visits that ask the model.
const ANSWERS: [Visit; 3] = [
    ("webgpu", "backend=webgpu&temperature=0", PRELUDE, answers),
    ("cpu", "backend=cpu&temperature=0", PRELUDE, answers),
    ("stop", "backend=cpu&temperature=0.8&tokens=240", PRELUDE, stops),
];

/// Visits that bring other models, lose the device, or have none.
const CHANGES: [Visit; 3] = [
    ("files", "backend=webgpu&temperature=0", PRELUDE, files),
    ("loss", "backend=webgpu&temperature=0&thread=main", PRELUDE, loses),
    ("without-webgpu", "temperature=0&thread=main", WITHOUT_WEBGPU, falls_back),
];

/// Runs the chat on both backends and compares what it writes with the native command on the CPU.
pub(crate) fn answer(sh: &Shell, server: &Server, screenshots: &Path) -> anyhow::Result<()> {
    run(sh, server, &Browser::launch()?, screenshots, ANSWERS)
}

/// Runs the chat with other models, and without its device.
pub(crate) fn change(sh: &Shell, server: &Server, screenshots: &Path) -> anyhow::Result<()> {
    let browser = Browser::launch()?;
    run(sh, server, &browser, screenshots, CHANGES)?;
    let url = server.url("chat/index.html?backend=webgpu&thread=main");
    let mut chat = Chat { sh, page: Page::open(&browser, &url, WITHOUT_WEBGPU)? };
    chat.settled()?;
    let (state, notice) = (chat.state()?, chat.text("notice")?);
    ensure!(state == "failed" && notice.contains("no WebGPU"), "asked for WebGPU: {state}, {notice:?}");
    println!("test chat/no-webgpu ... ok ({notice})");
    Ok(())
}

fn run(
    sh: &Shell,
    server: &Server,
    browser: &Browser,
    screenshots: &Path,
    visits: impl IntoIterator<Item = Visit>,
) -> anyhow::Result<()> {
    for (name, options, prelude, steps) in visits {
        let url = server.url(&format!("chat/index.html?tokens={TOKENS}&{options}"));
        let mut chat = Chat { sh, page: Page::open(browser, &url, prelude)? };
        let outcome = chat.ready().and_then(|()| steps(&mut chat));
        let Chat { mut page, .. } = chat;
        sh.write_file(screenshots.join(format!("chat-{name}.png")), page.screenshot()?)?;
        let seen = outcome.with_context(|| format!("chat/{name}: {}", page.errors.join("\n")))?;
        ensure!(page.errors.is_empty(), "chat/{name}: on the console: {}", page.errors.join("\n"));
        println!("test chat/{name} ... ok ({seen})");
    }
    Ok(())
}

/// What a visitor does once the model is ready; what is worth telling of it.
type Steps = fn(&mut Chat<'_>) -> anyhow::Result<String>;

/// Two messages, the second of which goes on with what the caches have.
fn answers(chat: &mut Chat<'_>) -> anyhow::Result<String> {
    let first = "A kernel is";
    let answer = chat.answer(first)?;
    chat.compare(first, &answer)?;
    let speed = chat.text("speed")?;
    let second = " The buffers";
    let follow_up = chat.answer(second)?;
    chat.compare(&format!("{first}{answer}{second}"), &follow_up)?;
    let memory = chat.text("memory")?;
    ensure!(memory.contains(" MB on the device"), "no memory is shown: {memory:?}");
    Ok(format!("{speed}; {memory}"))
}

/// An answer that is stopped, of which a part stays, and another one.
fn stops(chat: &mut Chat<'_>) -> anyhow::Result<String> {
    chat.run(STOP)?;
    chat.send("A kernel is")?;
    chat.ready()?;
    let made = chat.last_answer("dataset.tokens")?;
    let made: usize = made.as_str().unwrap_or_default().parse()?;
    ensure!((1..240).contains(&made), "{made} tokens were made");
    chat.run("document.getElementById('tokens').value = 8")?;
    let answer = chat.answer("And")?;
    ensure!(!answer.is_empty(), "no answer after a stopped one");
    Ok(format!("stopped after {made} tokens"))
}

/// Files that are no models are told, one that is a model is kept until it is removed.
fn files(chat: &mut Chat<'_>) -> anyhow::Result<String> {
    let wrong = [
        ("'not a model'", "text.gguf", "this is not a GGUF file"),
        ("model.slice(0, 500000)", "half.gguf", "it is cut short"),
        ("model.slice(0, 64), '\\xff'.repeat(4096)", "head.gguf", "can't be read"),
    ];
    for (parts, name, words) in wrong {
        chat.give(parts, name)?;
        let notice = chat.text("notice")?;
        ensure!(notice.contains(name) && notice.contains(words), "{name}: {notice:?}");
    }
    let prompt = "A kernel is";
    let answer = chat.answer(prompt)?;
    chat.compare(prompt, &answer)?;

    chat.give("model", "mine.gguf")?;
    let (notice, chosen) = (chat.text("notice")?, chat.value("model")?);
    ensure!(notice.is_empty() && chosen == "mine.gguf", "{chosen} is open: {notice:?}");
    // The next visit.
    chat.run("history.replaceState(null, '', location.search + '&model=mine.gguf')")?;
    chat.page.reload()?;
    chat.ready()?;
    let chosen = chat.value("model")?;
    ensure!(chosen == "mine.gguf", "the next visit opens {chosen}");
    let answer = chat.answer(prompt)?;
    chat.compare(prompt, &answer)?;
    let names = "JSON.stringify([...document.getElementById('model').options].map(option => option.value))";
    let kept = chat.run(names)?;
    ensure!(kept == r#"["bytes-1m-q8_0.gguf","mine.gguf"]"#, "{kept} are offered");
    chat.run("document.getElementById('remove').click()")?;
    chat.page.wait_until("document.getElementById('model').options.length === 1", PATIENCE)?;
    chat.ready()?;
    Ok("kept, and removed".to_owned())
}

/// The device is destroyed below the page, which says so and answers.
fn loses(chat: &mut Chat<'_>) -> anyhow::Result<String> {
    chat.run("devices.at(-1).destroy()")?;
    let prompt = "A kernel is";
    let answer = chat.answer(prompt)?;
    chat.compare(prompt, &answer)?;
    let notice = chat.text("notice")?;
    ensure!(notice.contains("lost"), "the loss is not told: {notice:?}");
    Ok(notice)
}

fn falls_back(chat: &mut Chat<'_>) -> anyhow::Result<String> {
    let backend = chat.text("backend")?;
    ensure!(backend.starts_with("cpu"), "without WebGPU the chat runs on {backend}");
    Ok(backend)
}

struct Chat<'a> {
    sh: &'a Shell,
    page: Page<'a>,
}

impl Chat<'_> {
    fn run(&mut self, expression: &str) -> anyhow::Result<Value> {
        self.page.evaluate(expression, PATIENCE)
    }

    fn settled(&mut self) -> anyhow::Result<()> {
        self.page.wait_until("!['loading', 'answering'].includes(document.body.dataset.state)", PATIENCE)
    }

    fn state(&mut self) -> anyhow::Result<String> {
        Ok(self.run("document.body.dataset.state")?.as_str().unwrap_or_default().to_owned())
    }

    /// Waits for the model, or for the end of an answer.
    fn ready(&mut self) -> anyhow::Result<()> {
        self.settled()?;
        ensure!(self.state()? == "ready", "not ready: {}", self.text("notice")?);
        Ok(())
    }

    fn text(&mut self, id: &str) -> anyhow::Result<String> {
        let text = self.run(&format!("document.getElementById({id:?}).textContent"))?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    fn value(&mut self, id: &str) -> anyhow::Result<String> {
        let value = self.run(&format!("document.getElementById({id:?}).value"))?;
        Ok(value.as_str().unwrap_or_default().to_owned())
    }

    /// Drops a file and waits until it is open, or what was before is again.
    fn give(&mut self, parts: &str, name: &str) -> anyhow::Result<()> {
        self.run(&DROP.replace("PARTS", parts).replace("NAME", name))?;
        self.ready()
    }

    fn send(&mut self, message: &str) -> anyhow::Result<()> {
        let message = serde_json::to_string(message)?;
        self.run(&format!("document.getElementById('message').value = {message}"))?;
        self.run("document.getElementById('form').requestSubmit()")?;
        Ok(())
    }

    fn answer(&mut self, message: &str) -> anyhow::Result<String> {
        self.send(message)?;
        self.ready()?;
        let answer = self.last_answer("textContent")?;
        Ok(answer.as_str().context("no answer")?.to_owned())
    }

    fn last_answer(&mut self, property: &str) -> anyhow::Result<Value> {
        self.run(&format!("[...document.querySelectorAll('#log li[data-role=assistant]')].at(-1).{property}"))
    }

    /// Compares greedy text with what the command writes on the CPU, which `cargo xtask test-web` has built beside
    /// this program.
    fn compare(&self, prompt: &str, answer: &str) -> anyhow::Result<()> {
        let llama = std::env::current_exe()?.with_file_name("llama");
        let tokens = TOKENS.to_string();
        let sh = self.sh;
        let json = cmd!(sh, "{llama} run {MODEL} {prompt} --backend cpu --temp 0 --json --tokens {tokens}")
            .quiet()
            .read();
        let expected = serde_json::from_str::<Report>(&json.context("no llama")?)?.text;
        ensure!(answer == expected, "after {prompt:?} came {answer:?}, natively {expected:?}");
        Ok(())
    }
}
