//! A server of the pages on this machine alone.

use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::anyhow;
use tiny_http::{Header, Request, Response};

use crate::build::PAGES;

/// Serves target/web, and the model's files as demo/model, until it is dropped.
pub(crate) struct Server {
    server: Arc<tiny_http::Server>,
    thread: Option<JoinHandle<()>>,
    port: u16,
}

impl Server {
    pub(crate) fn start(root: &Path, port: u16) -> anyhow::Result<Self> {
        let server = tiny_http::Server::http(("127.0.0.1", port)).map_err(|error| anyhow!(error))?;
        let port = server.server_addr().to_ip().map_or(port, |address| address.port());
        let (server, root) = (Arc::new(server), root.to_owned());
        let requests = Arc::clone(&server);
        let thread = thread::spawn(move || {
            for request in requests.incoming_requests() {
                let root = root.clone();
                // The weights take a while; a page asks for more meanwhile.
                thread::spawn(move || answer(&root, request));
            }
        });
        Ok(Self { server, thread: Some(thread), port })
    }

    /// The address of a page's file, such as `demo/index.html`. Browsers trust localhost as they do https.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://localhost:{}/{path}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("the server failed");
        }
    }
}

/// Serves the demos until the process is stopped.
pub(crate) fn serve(root: &Path, port: u16) -> anyhow::Result<()> {
    let mut server = Server::start(root, port)?;
    println!("search by meaning: {}", server.url("demo/index.html"));
    println!("chat: {}", server.url("chat/index.html"));
    match server.thread.take().map(JoinHandle::join) {
        Some(Err(_)) => Err(anyhow!("the server failed")),
        _ => Ok(()),
    }
}

fn answer(root: &Path, request: Request) {
    let file =
        file_of(root, request.url()).and_then(|path| Some((content_type(&path)?, File::open(path).ok()?)));
    let answered = match file {
        Some((content_type, file)) => request.respond(Response::from_file(file).with_header(content_type)),
        None => request.respond(Response::from_string("not here").with_status_code(404)),
    };
    if let Err(error) = answered {
        eprintln!("an answer did not arrive: {error}");
    }
}

/// The file that a path below the root of the server means.
fn file_of(root: &Path, url: &str) -> Option<PathBuf> {
    let path = url.split(['?', '#']).next()?.trim_start_matches('/');
    let plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if !plain {
        return None;
    }
    let file = match path.strip_prefix("demo/model/") {
        Some(name) => root.join(".cache/minilm").join(name),
        None => root.join(PAGES).join(path),
    };
    file.is_file().then_some(file)
}

fn content_type(path: &Path) -> Option<Header> {
    let value = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("json") => "application/json",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    };
    Header::from_bytes("Content-Type", value).ok()
}
