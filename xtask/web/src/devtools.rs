//! A page of the browser, by the Chrome DevTools Protocol.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

use crate::browser::Browser;

/// A page with everything that it reported.
pub(crate) struct Page<'a> {
    _browser: &'a Browser,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: String,
    next: u64,
    /// Errors on the console and exceptions that nothing caught, of the page and its workers.
    pub(crate) errors: Vec<String>,
}

/// The longest silence before a call is given up.
const PATIENCE: Duration = Duration::from_secs(20);

impl<'a> Page<'a> {
    /// Opens `url`, after `prelude` has run as the first script of the page.
    pub(crate) fn open(browser: &'a Browser, url: &str, prelude: &str) -> anyhow::Result<Self> {
        let (socket, _) = tungstenite::connect(&browser.address)?;
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        }
        let mut page =
            Self { _browser: browser, socket, session: String::new(), next: 0, errors: Vec::new() };
        let target = page.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = page.call("Target.attachToTarget", &attach)?;
        page.session = attached["sessionId"].as_str().context("no session")?.to_owned();
        let workers = json!({ "autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true });
        page.call("Target.setAutoAttach", &workers)?;
        for domain in ["Page", "Runtime", "Log"] {
            page.call(&format!("{domain}.enable"), &json!({}))?;
        }
        page.call("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": prelude }))?;
        page.call("Page.navigate", &json!({ "url": url }))?;
        page.wait_until("document.readyState === 'complete'", PATIENCE)?;
        Ok(page)
    }

    /// Opens the page once more.
    pub(crate) fn reload(&mut self) -> anyhow::Result<()> {
        // A mark that the next document hasn't.
        self.evaluate("window.isOld = true", PATIENCE)?;
        self.call("Page.reload", &json!({}))?;
        self.wait_until("!window.isOld && document.readyState === 'complete'", PATIENCE)
    }

    /// The value of an expression, or what its promise resolves to within `patience`.
    pub(crate) fn evaluate(&mut self, expression: &str, patience: Duration) -> anyhow::Result<Value> {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call_within("Runtime.evaluate", &parameters, patience)?;
        if let Some(exception) = answer.get("exceptionDetails") {
            bail!("{expression}: {}", thrown(exception));
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Waits for an expression to become true.
    pub(crate) fn wait_until(&mut self, expression: &str, patience: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        while self.evaluate(expression, PATIENCE)? != Value::Bool(true) {
            ensure!(start.elapsed() < patience, "after {patience:?} still not: {expression}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// A picture of the page as PNG.
    pub(crate) fn screenshot(&mut self) -> anyhow::Result<Vec<u8>> {
        let answer = self.call("Page.captureScreenshot", &json!({ "format": "png" }))?;
        Ok(STANDARD.decode(answer["data"].as_str().context("no picture")?)?)
    }

    fn call(&mut self, method: &str, parameters: &Value) -> anyhow::Result<Value> {
        self.call_within(method, parameters, PATIENCE)
    }

    fn call_within(&mut self, method: &str, parameters: &Value, patience: Duration) -> anyhow::Result<Value> {
        let id = self.send(method, parameters, &self.session.clone())?;
        let start = Instant::now();
        loop {
            if let Some(message) = self.receive()? {
                if message["id"] == id {
                    ensure!(message.get("error").is_none(), "{method}: {}", message["error"]);
                    return Ok(message["result"].clone());
                }
                self.note(&message)?;
            }
            ensure!(start.elapsed() < patience, "{method}: no answer in {patience:?}: {parameters}");
        }
    }

    fn send(&mut self, method: &str, parameters: &Value, session: &str) -> anyhow::Result<u64> {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": parameters });
        if !session.is_empty() {
            message["sessionId"] = session.into();
        }
        self.socket.send(Message::text(message.to_string()))?;
        Ok(self.next)
    }

    fn receive(&mut self) -> anyhow::Result<Option<Value>> {
        match self.socket.read() {
            Ok(Message::Text(text)) => Ok(Some(serde_json::from_str(&text)?)),
            Ok(_) => Ok(None),
            Err(tungstenite::Error::Io(error))
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Prints what the page logs and keeps what it reports as wrong.
    fn note(&mut self, message: &Value) -> anyhow::Result<()> {
        let parameters = &message["params"];
        match message["method"].as_str() {
            Some("Target.attachedToTarget") => {
                let worker = parameters["sessionId"].as_str().unwrap_or_default();
                for domain in ["Runtime", "Log"] {
                    self.send(&format!("{domain}.enable"), &json!({}), worker)?;
                }
            }
            Some("Runtime.consoleAPICalled") => {
                let words: Vec<String> =
                    parameters["args"].as_array().into_iter().flatten().map(spoken).collect();
                let line = words.join(" ");
                match parameters["type"].as_str() {
                    Some("error" | "assert") => self.errors.push(line),
                    _ => println!("{line}"),
                }
            }
            Some("Runtime.exceptionThrown") => self.errors.push(thrown(&parameters["exceptionDetails"])),
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => {
                self.errors.push(format!("{} {}", parameters["entry"]["text"], parameters["entry"]["url"]));
            }
            Some("Inspector.targetCrashed") => bail!("the page crashed"),
            _ => {}
        }
        Ok(())
    }
}

/// A value as the console would show it.
fn spoken(value: &Value) -> String {
    match &value["value"] {
        Value::Null => value["description"].as_str().unwrap_or_default().to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn thrown(details: &Value) -> String {
    let description = details["exception"]["description"].as_str();
    description.or(details["exception"]["value"].as_str()).unwrap_or("an exception").to_owned()
}
