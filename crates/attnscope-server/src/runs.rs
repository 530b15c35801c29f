//! Runs, and the arithmetic of their cells.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use attnscope::answer::RunReport;
use attnscope::{
    Cancel, ExplainOptions, Failure, FailureKind, Input, Limits, Model, Progress, RunOptions, SourceInput,
    TargetInput, TokenCount,
};

use crate::queue::Ticket;
use crate::refusal;
use crate::state::{Bounds, Shared};

/// What a request asks for. A recording comes as the body; this is then in the address.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// The source's text, or the prompt of a decoder alone; a built-in model has one where none is given.
    source: Option<String>,
    /// The target's text; the model generates one where none is given.
    target: Option<String>,
    /// Of a cell: its node.
    node: Option<String>,
    /// Of a cell: one index per dimension, separated by commas.
    at: Option<String>,
}

impl Asked {
    /// Reads the body of a request, or says what is wrong with it.
    fn read(body: &[u8]) -> Result<Self, String> {
        let document: Value = serde_json::from_slice(body).map_err(|e| {
            format!("expected JSON, found text that is none at line {}, column {}", e.line(), e.column())
        })?;
        let Value::Object(keys) = document else {
            return Err(format!("expected an object, found {}", kind_of(&document)));
        };
        let mut asked = Self::default();
        for (key, value) in keys {
            let field = match key.as_str() {
                "source" => &mut asked.source,
                "target" => &mut asked.target,
                "node" => &mut asked.node,
                "at" => &mut asked.at,
                _ => return Err(format!("expected source, target, node and at, found the key {key:?}")),
            };
            *field = match value {
                Value::String(text) => Some(text),
                Value::Null => None,
                other => return Err(format!("{key}: expected a text, found {}", kind_of(&other))),
            };
        }
        Ok(asked)
    }
}

/// What a value is, in words.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A request that was understood, with the file of its recording, which is removed with it.
struct Question {
    input: Input,
    node: Option<String>,
    at: Option<String>,
    upload: Option<NamedTempFile>,
}

/// How long the bytes of a refused body may still come.
const DISCARDED_FOR: Duration = Duration::from_secs(2);

/// Recordings begin with these: RIFF (wav), fLaC, ID3 or a frame of MPEG audio.
fn is_audio(bytes: &[u8]) -> bool {
    let is_frame = matches!(bytes, [0xff, second, ..] if second & 0xe0 == 0xe0);
    [&b"RIFF"[..], b"fLaC", b"ID3"].iter().any(|magic| bytes.starts_with(magic)) || is_frame
}

/// A request that has a place in the queue, and whose body was read.
struct Accepted {
    ticket: Ticket,
    is_json: bool,
    body: Bytes,
}

/// Takes a place in the queue and then reads the body: who is turned away is told so before anything is read.
async fn accepted(shared: &Shared, request: Request) -> Result<Accepted, Response> {
    let (is_json, announced) = announced(request.headers());
    let Bounds { upload_bytes, text_bytes, upload_time, .. } = shared.bounds();
    let most = if is_json { text_bytes } else { upload_bytes };
    let body = request.into_body();
    if announced.is_some_and(|length| length > most) {
        discard(body);
        return Err(too_large(is_json, most));
    }
    let Some(ticket) = shared.queue.enter() else {
        discard(body);
        return Err(full(shared));
    };
    let reading = tokio::time::timeout(upload_time, read(body, is_json, most));
    let body = reading.await.map_err(|_| {
        let error = format!("the body did not arrive within {} s", upload_time.as_secs());
        refusal(StatusCode::REQUEST_TIMEOUT, &error, "send a shorter recording")
    })??;
    Ok(Accepted { ticket, is_json, body })
}

/// Lets the bytes of a refused body pass for a moment, without keeping them. A connection that is closed while they still come
/// is reset, and most clients then never see the answer, which was sent before.
fn discard(body: Body) {
    let pass = async move {
        let mut parts = body.into_data_stream();
        while let Some(Ok(_)) = parts.next().await {}
    };
    tokio::spawn(tokio::time::timeout(DISCARDED_FOR, pass));
}

/// Whether a body is JSON, and how many bytes it has, where that is said.
fn announced(headers: &HeaderMap) -> (bool, Option<usize>) {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let kind = text(header::CONTENT_TYPE).and_then(|kind| kind.split(';').next()).unwrap_or_default();
    let is_json = kind.trim().eq_ignore_ascii_case("application/json");
    (is_json, text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok()))
}

async fn read(body: Body, is_json: bool, most: usize) -> Result<Bytes, Response> {
    let mut parts = body.into_data_stream();
    let mut whole = Vec::new();
    while let Some(part) = parts.next().await {
        let part =
            part.map_err(|_| refusal(StatusCode::BAD_REQUEST, "the body ended early", "send it again"))?;
        if whole.len() + part.len() > most {
            return Err(too_large(is_json, most));
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.into())
}

fn too_large(is_json: bool, most: usize) -> Response {
    let (what, help) = match is_json {
        true => ("JSON", "send a shorter text"),
        false => ("a recording", "send a shorter one"),
    };
    let error = format!("the body is too large: at most {} KiB of {what} are read here", most >> 10);
    refusal(StatusCode::PAYLOAD_TOO_LARGE, &error, help)
}

/// Understands a request, or says what is wrong with it.
#[allow(clippy::result_large_err)] // The error is the response.
fn question(shared: &Shared, in_address: Asked, is_json: bool, body: &Bytes) -> Result<Question, Response> {
    let (asked, upload) = match is_json {
        true => {
            let asked = Asked::read(body).map_err(|wrong| {
                let help = "send an object with `source` and `target`, as docs/serve.md describes";
                refusal(StatusCode::BAD_REQUEST, &format!("the body: {wrong}"), help)
            })?;
            (asked, None)
        }
        false if is_audio(body) => (in_address, Some(saved(body)?)),
        false => {
            let help = "choose a wav, flac or mp3 file; a program sends text as JSON (application/json)";
            return Err(refusal(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "expected a recording (wav, flac, mp3), found other bytes",
                help,
            ));
        }
    };
    let is_decoder = shared
        .model()
        .opened()
        .model()
        .is_ok_and(|model| !model.architecture.reads(attnscope::graph::Side::Source));
    // A text that is given and empty is an empty text, as on the command line.
    let source = match (&upload, asked.source) {
        (Some(file), _) => Some(SourceInput::Audio(file.path().to_owned())),
        (None, Some(text)) if is_decoder => Some(SourceInput::Prompts(vec![text])),
        (None, Some(text)) => Some(SourceInput::Texts(vec![text])),
        (None, None) => None,
    };
    let target = asked.target.map(|text| TargetInput::Texts(vec![text]));
    let input = Input { source, target, ..Input::default() };
    within_bounds(shared, &input)?;
    Ok(Question { input, node: asked.node, at: asked.at, upload })
}

/// Refuses texts of more tokens than are run here, or than the model has positions for.
#[allow(clippy::result_large_err)]
fn within_bounds(shared: &Shared, input: &Input) -> Result<(), Response> {
    // A model that cannot read texts at all says why when it is run.
    let counts = shared.model().token_counts(input).unwrap_or_default();
    let most = shared.bounds().tokens;
    let is_long = |count: &&TokenCount| count.tokens > count.positions.unwrap_or(most).min(most);
    let Some(TokenCount { side, tokens, positions, table }) = counts.iter().find(is_long).copied() else {
        return Ok(());
    };
    let is_prompt = matches!(input.source, Some(SourceInput::Prompts(_)));
    let text = if is_prompt { "prompt" } else { side.word() };
    let table = match (positions, table) {
        (Some(positions), _) => format!("the model's position table has {positions}"),
        (None, Some(table)) => {
            format!("the model's positions are computed, without a limit (Hugging Face's table has {table})")
        }
        (None, None) => "the model's positions have no limit".to_owned(),
    };
    let error = format!("the {text} has {tokens} tokens; at most {most} are run here, and {table}");
    let help = match positions.is_some_and(|positions| tokens > positions) {
        true => "shorten it",
        false => "shorten it, or use `attnscope report` on the command line, which has no such bound",
    };
    Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, &error, help))
}

/// A recording under a name that nobody gave it.
#[allow(clippy::result_large_err)]
fn saved(body: &Bytes) -> Result<NamedTempFile, Response> {
    let written = NamedTempFile::new().and_then(|mut file| file.write_all(body).map(|()| file));
    written.map_err(|e| {
        let help = "check that the folder of temporary files can be written to";
        refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("the recording could not be kept: {e}"), help)
    })
}

fn full(shared: &Shared) -> Response {
    let seconds = shared.queue.again_in().as_secs_f64().ceil() as u64;
    let help = format!("try again in {seconds} s");
    let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, "too many requests wait already", &help);
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    response
}

/// A failure in the words of the server: without the name of a file that nobody knows.
fn worded(shared: &Shared, failure: &Failure, question: &Question) -> (String, String) {
    let (error, help) = shared.words(failure);
    match &question.upload {
        Some(file) => (error.replace(&*file.path().to_string_lossy(), "the recording"), help),
        None => (error, help),
    }
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

/// Where the lines of an answer go.
type Lines = mpsc::Sender<Result<Bytes, Infallible>>;

/// A place in the queue, and what is asked.
#[allow(clippy::result_large_err)]
async fn understood(
    shared: &Arc<Shared>,
    in_address: Asked,
    request: Request,
) -> Result<(Ticket, Question), Response> {
    let Accepted { ticket, is_json, body } = accepted(shared, request).await?;
    // A tokenizer may take its time over a long text.
    let shared = shared.clone();
    let work = tokio::task::spawn_blocking(move || question(&shared, in_address, is_json, &body));
    let broken = "the request ended in the middle of its work";
    let asked = work
        .await
        .map_err(|_| refusal(StatusCode::INTERNAL_SERVER_ERROR, broken, "please report what was asked"))?;
    Ok((ticket, asked?))
}

/// `POST /api/v1/runs`: lines of JSON as the run goes on; the last has `run`, or `error` and `help`.
pub(crate) async fn run(
    State(shared): State<Arc<Shared>>,
    Query(in_address): Query<Asked>,
    request: Request,
) -> Response {
    let (ticket, question) = match understood(&shared, in_address, request).await {
        Ok(understood) => understood,
        Err(refused) => return refused,
    };
    let (send, receive) = mpsc::channel(16);
    tokio::spawn(async move {
        let cancel = Cancel::default();
        let id = shared.begin(cancel.clone());
        let _ = send.send(Ok(line(&json!({ "id": id.to_string(), "queued": ticket.before })))).await;
        let last = in_turn(&shared, &ticket, &cancel, question, &send).await;
        let _ = send.send(Ok(last)).await;
        shared.end(id);
    });
    let lines = Body::from_stream(ReceiverStream::new(receive));
    ([(header::CONTENT_TYPE, "application/x-ndjson")], lines).into_response()
}

/// Waits for its turn, runs, and gives the last line. Whoever leaves, or takes too long, is cancelled.
async fn in_turn(
    shared: &Arc<Shared>,
    ticket: &Ticket,
    cancel: &Cancel,
    question: Question,
    send: &Lines,
) -> Bytes {
    let turn = tokio::select! {
        turn = ticket.turn() => turn,
        () = send.closed() => None,
    };
    let Some(turn) = turn else { return Bytes::new() };
    let told = send.clone();
    let progress = Progress::new(move |step| {
        let step = json!({ "progress": { "of": step.of.name(), "done": step.done, "total": step.total } });
        // A slow reader misses steps, and the run does not wait for it.
        let _ = told.try_send(Ok(line(&step)));
    });
    let worker = (shared.clone(), cancel.clone());
    let work = tokio::task::spawn_blocking(move || {
        // The next one's turn begins when this work has really ended.
        let _turn = turn;
        let (shared, cancel) = worker;
        let made = limited(&shared, cancel, progress)
            .run_report(&RunOptions { input: question.input.clone(), row: 0 });
        made.map(|run| whole_line(without_path(run)))
            .map_err(|failure| (failure.kind, worded(&shared, &failure, &question)))
    });
    tokio::pin!(work);
    let late = tokio::time::sleep(shared.bounds().time);
    tokio::pin!(late);
    let mut is_late = false;
    let done = loop {
        tokio::select! {
            done = &mut work => break done,
            () = send.closed(), if !cancel.is_cancelled() => cancel.cancel(),
            () = &mut late, if !is_late => {
                is_late = true;
                cancel.cancel();
            }
        }
    };
    match done {
        Ok(Ok(line)) => line,
        Ok(Err((FailureKind::Cancelled, _))) => line(&ended(shared, is_late)),
        Ok(Err((_, (error, help)))) => line(&json!({ "error": error, "help": help })),
        Err(_) => line(
            &json!({ "error": "the run ended in the middle of its work", "help": "this is a defect of attnscope: please report what it was run on" }),
        ),
    }
}

/// Why a run ended before its end.
fn ended(shared: &Shared, is_late: bool) -> Value {
    match is_late {
        true => json!({
            "error": format!("the run took longer than {} s, and was ended", shared.bounds().time.as_secs()),
            "help": "give it less to read, or use `attnscope report` on the command line, which has no such bound",
        }),
        false => json!({ "error": "the run was cancelled", "help": "run it again" }),
    }
}

fn limited(shared: &Shared, cancel: Cancel, progress: Progress) -> Model {
    let limits = Limits { cancel, progress, ..shared.model().limits().clone() };
    shared.model().clone().with_limits(limits)
}

/// The run without the name under which its recording was kept.
fn without_path(mut run: RunReport) -> RunReport {
    if let Some(audio) = run.generation.as_mut().and_then(|generation| generation.audio.as_mut()) {
        audio.file = "the recording".to_owned();
    }
    run
}

fn whole_line(run: RunReport) -> Bytes {
    match serde_json::to_string(&run) {
        Ok(json) => Bytes::from(format!("{{\"run\":{json}}}\n")),
        Err(e) => line(&json!({ "error": format!("the answer: {e}"), "help": "please report this" })),
    }
}

/// `DELETE /api/v1/runs/ID`
pub(crate) async fn cancel(State(shared): State<Arc<Shared>>, Path(id): Path<u64>) -> Response {
    match shared.cancel(id) {
        true => StatusCode::NO_CONTENT.into_response(),
        false => refusal(StatusCode::NOT_FOUND, "there is no such run under way", "it may have ended"),
    }
}

/// `POST /api/v1/explain`: one cell, as `explain NODE --at CELL --format json` has it.
pub(crate) async fn explain(
    State(shared): State<Arc<Shared>>,
    Query(in_address): Query<Asked>,
    request: Request,
) -> Response {
    let (ticket, question) = match understood(&shared, in_address, request).await {
        Ok(understood) => understood,
        Err(refused) => return refused,
    };
    let indices =
        |at: &str| at.split(',').map(|part| part.trim().parse().ok()).collect::<Option<Vec<usize>>>();
    let cell = match question.at.as_deref().map(indices) {
        None => None,
        Some(Some(cell)) => Some(cell),
        Some(None) => {
            return refusal(StatusCode::BAD_REQUEST, "`at` is not a list of indices", "write it as 0,1,2,3");
        }
    };
    let Some(topic) = question.node.clone() else {
        return refusal(
            StatusCode::BAD_REQUEST,
            "`node` is missing",
            "name the node whose cell is asked for",
        );
    };
    let Some(turn) = ticket.turn().await else { return full(&shared) };
    let (cancel, bounds) = (Cancel::default(), shared.bounds());
    // Where the one who asked leaves, this is dropped, and the work ends with the flag; so it does where the server ends.
    let _end = EndWith { id: shared.begin(cancel.clone()), cancel: cancel.clone(), shared: shared.clone() };
    let worker = (shared.clone(), cancel);
    let work = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let (shared, cancel) = worker;
        let options =
            ExplainOptions { input: Some(question.input.clone()), cell, ..ExplainOptions::default() };
        let made = limited(&shared, cancel, Progress::default()).explain(&topic, &options);
        made.map_err(|failure| worded(&shared, &failure, &question))
    });
    match tokio::time::timeout(bounds.time, work).await {
        Ok(Ok(Ok(explanation))) => match serde_json::to_string(&explanation) {
            Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
            Err(e) => {
                refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("the answer: {e}"), "please report this")
            }
        },
        Ok(Ok(Err((error, help)))) => refusal(StatusCode::UNPROCESSABLE_ENTITY, &error, &help),
        Ok(Err(_)) => {
            refusal(StatusCode::INTERNAL_SERVER_ERROR, "the work ended in the middle", "please report this")
        }
        Err(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "it took too long", "give the model less to read"),
    }
}

/// Raises the flag of work when it is dropped.
struct EndWith {
    id: u64,
    cancel: Cancel,
    shared: Arc<Shared>,
}

impl Drop for EndWith {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.shared.end(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_or_what_is_wrong_with_it_is_said() {
        let asked = Asked::read(br#"{"source": "", "target": null}"#).unwrap();
        assert_eq!((asked.source.as_deref(), asked.target), (Some(""), None));
        let cases = [
            ("[1]", "expected an object, found a list"),
            ("\"a dog\"", "expected an object, found a text"),
            ("{\"source\": 1}", "source: expected a text, found a number"),
            ("{\"sorce\": \"a\"}", "expected source, target, node and at, found the key \"sorce\""),
            ("{\"source\": }", "expected JSON, found text that is none at line 1, column 12"),
            ("", "expected JSON"),
        ];
        for (body, words) in cases {
            let wrong = Asked::read(body.as_bytes()).unwrap_err();
            assert!(wrong.contains(words), "{body}: {wrong}");
        }
    }
}
