//! The page on a loopback port, and the versioned JSON API that it uses: what the library answers, for one model that is loaded
//! once. docs/serve.md describes it.
//!
//! A request comes from a browser, and so perhaps from a page of somebody else: the guard lets through what names a loopback host,
//! and comes from the page itself or from a program that says so. Its cost is bounded, runs wait in one queue in the order in
//! which they came, and no file is served.

mod guard;
mod queue;
mod runs;
mod state;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Router, middleware};

use attnscope::answer::Report;
use attnscope::{Failure, Model};
use attnscope_render::html::{self, Place};

pub use state::Bounds;
use state::Shared;

/// What an answer of the API is.
const JSON: &str = "application/json";
/// How long connections may take to end after the server was told to.
const TO_END: Duration = Duration::from_secs(5);

/// What is served.
pub struct Served {
    /// The model; its weights are read before the first request.
    pub model: Model,
    /// What is known of the model without a run.
    pub report: Report,
    /// What a request may cost.
    pub bounds: Bounds,
    /// How failures are worded: an `error` and a `help`.
    pub words: fn(&Failure) -> (String, String),
}

/// Serves until `stop` is set. `listening` is told the address once.
///
/// # Errors
/// Where the address cannot be listened on.
pub fn serve(
    served: Served,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    listening: impl FnOnce(SocketAddr),
) -> Result<(), Failure> {
    let failed =
        |e: io::Error| Failure::new(format!("{address}: {e}"), "choose another port, or 0 for a free one");
    let page = page(&served.report)?;
    let shared = Arc::new(Shared::new(served, page)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let ended = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await.map_err(failed)?;
        listening(listener.local_addr().map_err(failed)?);
        let ended = {
            let (shared, stop) = (shared.clone(), stop.clone());
            async move {
                told(&stop).await;
                // Connections that stream a run end with it.
                shared.cancel_all();
            }
        };
        // A request that was begun and never ended would hold the server for ever.
        let late = async move {
            told(&stop).await;
            tokio::time::sleep(TO_END).await;
        };
        let served = axum::serve(listener, router(shared)).with_graceful_shutdown(ended);
        tokio::select! {
            done = served => done.map_err(failed),
            () = late => Ok(()),
        }
    });
    runtime.shutdown_background();
    ended
}

/// Waits until the server is told to end.
async fn told(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn page(report: &Report) -> Result<String, Failure> {
    let bug = |e: &dyn std::fmt::Display| Failure::new(format!("the page: {e}"), "please report this");
    let json = serde_json::to_string(report).map_err(|e| bug(&e))?;
    html::report(report, &json, Place::Server).map_err(|e| bug(&e))
}

fn router(shared: Arc<Shared>) -> Router {
    let most = shared.bounds().upload_bytes;
    Router::new()
        .route("/", get(|State(shared): State<Arc<Shared>>| async move { document(&shared) }))
        .route("/page.js", get(|| async { asset("text/javascript; charset=utf-8", html::SCRIPT) }))
        .route("/page.css", get(|| async { asset("text/css; charset=utf-8", html::STYLE) }))
        .route("/api/v1/model", get(|State(shared): State<Arc<Shared>>| async move { model(&shared) }))
        .route("/api/v1/runs", post(runs::run))
        .route("/api/v1/runs/{id}", delete(runs::cancel))
        .route("/api/v1/explain", post(runs::explain))
        .fallback(|| async {
            refusal(StatusCode::NOT_FOUND, "there is no such page", "the page is /, its API /api/v1/")
        })
        .layer(DefaultBodyLimit::max(most))
        .layer(middleware::from_fn(guard::guard))
        .with_state(shared)
}

fn document(shared: &Shared) -> Response {
    asset("text/html; charset=utf-8", shared.page().to_owned())
}

fn model(shared: &Shared) -> Response {
    asset(JSON, shared.model_json().to_owned())
}

fn asset(kind: &'static str, body: impl Into<axum::body::Body>) -> Response {
    ([(header::CONTENT_TYPE, kind)], body.into()).into_response()
}

/// An answer that says why not, and what to do.
fn refusal(status: StatusCode, error: &str, help: &str) -> Response {
    let body = serde_json::json!({ "error": error, "help": help }).to_string();
    (status, [(header::CONTENT_TYPE, JSON)], body).into_response()
}
