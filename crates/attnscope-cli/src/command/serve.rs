//! `serve`: the page of a model, live, on a loopback port.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use attnscope::{DoctorOptions, Failure, Input, PairLines, ReportOptions, RunOptions};
use attnscope_server::{Bounds, Listener, Served};
use clap::Args;

use super::doctor::seconds;
use super::{ModelArgs, Output, OutputArgs, interrupt, page_remedies};

#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    model: ModelArgs,
    /// The port [default: a free one]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// The loopback address to listen on
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_parser = loopback)]
    address: IpAddr,
    /// Pairs that the doctor judges the model on [default: demo has its own; other models are checked
    /// without a run]
    #[arg(long, value_name = "FILE")]
    doctor_pairs: Option<PathBuf>,
    /// The most seconds that the doctor tries repairs of the weights
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds)]
    repair_time: Duration,
    /// The most tokens of a source or a target
    #[arg(long, value_name = "N", default_value_t = Bounds::default().tokens)]
    max_tokens: usize,
    /// The most seconds that a run may take
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    max_time: Duration,
    /// No notes on standard error
    #[arg(long, short)]
    quiet: bool,
}

fn loopback(text: &str) -> Result<IpAddr, String> {
    let address = text.parse::<IpAddr>().ok().filter(IpAddr::is_loopback);
    address.ok_or_else(|| {
        "expected a loopback address, 127.0.0.1 or ::1: forward its port to reach it from elsewhere"
            .to_owned()
    })
}

impl Serve {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let output = OutputArgs { quiet: self.quiet, ..OutputArgs::usual() };
        let output = Output::new(&output)?;
        let model = self.model.model()?.on_note(output.listener());
        let listener = Listener::bind(SocketAddr::new(self.address, self.port))?;
        let doctor = self.doctor()?;
        // A built-in model has something to read, so that the page is not empty.
        let is_builtin = matches!(model.opened().name.as_str(), "demo" | "toy");
        let run = is_builtin.then(|| RunOptions { input: Input::default(), row: 0 });
        let report = model.report(ReportOptions { run, ..ReportOptions::default() })?;
        let bounds = Bounds { tokens: self.max_tokens, time: self.max_time, ..Bounds::default() };
        let words = |failure: &Failure| (failure.to_string(), page_remedies::words(&failure.remedy));
        let stop =
            interrupt::stop_first("note: interrupted: the server ends; a second signal ends at once\n");
        say(listener.address());
        listener.serve(Served { model, report, doctor, bounds, words }, stop)
    }

    /// What the model is judged on while it is served.
    fn doctor(&self) -> Result<DoctorOptions, Failure> {
        let usual = DoctorOptions {
            repair_time: self.repair_time,
            words: page_remedies::words,
            ..DoctorOptions::default()
        };
        Ok(match &self.doctor_pairs {
            Some(file) => {
                let lines = attnscope_run::read_pairs(crate::text_file::opened_as(file))?;
                DoctorOptions { pairs: PairLines { lines, file: file.clone() }, ..usual }
            }
            None => usual,
        })
    }
}

/// Tells the address. Standard output may be a pipe that somebody reads it from.
fn say(address: SocketAddr) {
    use std::io::Write;
    let mut out = std::io::stdout();
    let _ = writeln!(out, "http://{address}/").and_then(|()| out.flush());
}
