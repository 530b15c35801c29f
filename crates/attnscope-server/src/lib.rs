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

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Router, middleware};

use attnscope::answer::Report;
use attnscope::{DoctorOptions, Failure, Limits, Model};
use attnscope_render::html;

pub use state::Bounds;
use state::{Known, Shared};

/// What an answer of the API is.
const JSON: &str = "application/json";
/// How long connections may take to end after the server was told to.
const TO_END: Duration = Duration::from_secs(5);

/// What is served.
pub struct Served {
    /// The model.
    pub model: Model,
    /// What is known of the model before the doctor looks at it.
    pub report: Report,
    /// How the doctor looks at it, while the page is already served.
    pub doctor: DoctorOptions,
    /// What a request may cost.
    pub bounds: Bounds,
    /// How failures are worded: an `error` and a `help`.
    pub words: fn(&Failure) -> (String, String),
}

/// A port that is listened on.
#[derive(Debug)]
pub struct Listener {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Takes the port. Who connects waits until [`Listener::serve`].
    ///
    /// # Errors
    /// Where the address cannot be listened on.
    pub fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let bound = std::net::TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(Self { address: listener.local_addr()?, listener })
        });
        bound.map_err(|e| failed(address, e))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is set.
    ///
    /// # Errors
    /// Where there are no threads for it.
    pub fn serve(self, served: Served, stop: Arc<AtomicBool>) -> Result<(), Failure> {
        let failed = |e: io::Error| failed(self.address, e);
        let Served { model, report, doctor, bounds, words } = served;
        let known = Known::of(&report, false)?;
        let shared = Arc::new(Shared::new(model, bounds, words, known));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let examining = shared.clone();
        runtime.spawn_blocking(move || examine(&examining, report, &doctor));
        let ended = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener).map_err(failed)?;
            let ended = {
                let (shared, stop) = (shared.clone(), stop.clone());
                async move {
                    told(&stop).await;
                    // Connections that stream a run, or wait for the verdict, end with it.
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
}

fn failed(address: SocketAddr, e: io::Error) -> Failure {
    Failure::new(format!("{address}: {e}"), "choose another port, or 0 for a free one")
}

/// Lets the doctor look at the model, beside the runs that are asked for.
fn examine(shared: &Shared, mut report: Report, doctor: &DoctorOptions) {
    let limits = Limits { cancel: shared.ending.clone(), ..shared.model().limits().clone() };
    let model = shared.model().clone().with_limits(limits);
    // It fails where it is cancelled: the server ends, and nobody needs the verdict.
    let known = report.examine(&model, doctor).and_then(|()| Known::of(&report, true));
    if let Ok(known) = known {
        shared.learn(known);
    }
}

/// Waits until the server is told to end.
async fn told(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(|State(shared): State<Arc<Shared>>| async move { document(&shared) }))
        .route("/page.js", get(|| async { asset("text/javascript; charset=utf-8", html::SCRIPT) }))
        .route("/page.css", get(|| async { asset("text/css; charset=utf-8", html::STYLE) }))
        .route("/api/v1/model", get(|State(shared): State<Arc<Shared>>| async move { model(&shared) }))
        .route(
            "/api/v1/verdict",
            get(|State(shared): State<Arc<Shared>>| async move { verdict(&shared).await }),
        )
        .route("/api/v1/runs", post(runs::run))
        .route("/api/v1/runs/{id}", delete(runs::cancel))
        .route("/api/v1/explain", post(runs::explain))
        .fallback(|| async {
            refusal(StatusCode::NOT_FOUND, "there is no such page", "the page is /, its API /api/v1/")
        })
        .layer(middleware::from_fn(guard::guard))
        .with_state(shared)
}

fn document(shared: &Shared) -> Response {
    asset("text/html; charset=utf-8", shared.known().page.clone())
}

fn model(shared: &Shared) -> Response {
    asset(JSON, shared.known().json.clone())
}

/// What is known of the model, once the doctor is done.
async fn verdict(shared: &Shared) -> Response {
    let ending = async {
        while !shared.ending.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        Some(known) = shared.examined() => asset(JSON, known.json.clone()),
        () = ending => refusal(StatusCode::SERVICE_UNAVAILABLE, "the server ends", "start it again"),
    }
}

fn asset(kind: &'static str, body: impl Into<axum::body::Body>) -> Response {
    ([(header::CONTENT_TYPE, kind)], body.into()).into_response()
}

/// An answer that says why not, and what to do.
fn refusal(status: StatusCode, error: &str, help: &str) -> Response {
    let body = serde_json::json!({ "error": error, "help": help }).to_string();
    (status, [(header::CONTENT_TYPE, JSON)], body).into_response()
}
