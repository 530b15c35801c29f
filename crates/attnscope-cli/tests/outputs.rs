//! Outputs and what they would replace: no result goes over an input, a model or tensors.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::path::Path;
use std::process::Output;

use common::{attnscope, command, fixture, stderr};
use tempfile::{TempDir, tempdir};

/// Runs a command whose output would replace `file`: exit 2, the file is named and is as it was, and nothing is added.
fn spares(file: &Path, folder: &Path, args: &[&str]) -> String {
    let names = || std::fs::read_dir(folder).unwrap().count();
    let before = (std::fs::read(file).unwrap(), names());
    let output = command(args).current_dir(folder).output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert!(before == (std::fs::read(file).unwrap(), names()), "{args:?}: the folder has changed");
    let name = file.file_name().unwrap().to_string_lossy();
    let error = text.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(error.contains(&*name) && error.contains("not overwritten"), "{args:?}: {text}");
    assert!(text.contains("help: give another name for the output"), "{args:?}: {text}");
    text
}

/// A folder with a copy of a fixture's files.
fn copy_of(name: &str) -> TempDir {
    let folder = tempdir().unwrap();
    for entry in std::fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    folder
}

fn fine(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
}

#[test]
fn a_model_is_not_written_over_by_another() {
    let folder = copy_of("bart");
    let weights = folder.path().join("model.safetensors");
    let text = spares(&weights, folder.path(), &["convert", "demo", "model.safetensors"]);
    assert!(text.contains("safetensors"), "{text}");
    spares(&weights, folder.path(), &["convert", ".", "model.safetensors"]);
    spares(&weights, folder.path(), &["flow", "demo", "-o", "model.safetensors"]);
    // Also under a name that says nothing, and by a link.
    std::fs::hard_link(&weights, folder.path().join("notes.apr")).unwrap();
    spares(&folder.path().join("notes.apr"), folder.path(), &["convert", "demo", "notes.apr"]);
}

#[test]
fn the_files_beside_the_weights_are_not_written_over() {
    let folder = copy_of("bart");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("tokenizer.json"), "{}").unwrap();
    std::fs::write(at("generation_config.json"), "{}").unwrap();
    for name in ["config.json", "tokenizer.json", "generation_config.json"] {
        spares(&at(name), folder.path(), &["flow", ".", "-o", name]);
        spares(&at(name), folder.path(), &["inspect", "model.safetensors", "-o", name]);
    }
    // Not even where the user says so.
    spares(&at("config.json"), folder.path(), &["flow", ".", "-o", "config.json", "--force"]);
}

#[test]
fn a_result_of_before_is_replaced_where_it_says_that_it_is_one() {
    let folder = tempdir().unwrap();
    let run = |args: &[&str]| command(args).current_dir(folder.path()).output().unwrap();
    let trained = ["train", "toy", "--dry-run", "--format", "json", "-o", "out"];
    let page = ["report", "toy", "--repair-time", "0", "-o", "out"];
    let sarif = ["doctor", "toy", "--repair-time", "0", "--format", "sarif", "-o", "out"];
    let forms = [
        &["flow", "--format", "svg", "-o", "out"][..],
        &["trace", "--format", "svg", "--layer", "decoder.0.cross_attn.weights", "-o", "out"],
        &["flow", "--format", "dot", "-o", "out"],
        &["flow", "--format", "mermaid", "-o", "out"],
        &["flow", "--format", "html", "-o", "out"],
        &["flow", "--format", "json", "-o", "out"],
        &["explain", "softmax", "--format", "json", "-o", "out"],
        &["generate", "--format", "json", "-o", "out"],
        &trained,
        &sarif,
        &page,
    ];
    for args in forms {
        let output = run(args);
        assert_ne!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(std::fs::metadata(folder.path().join("out")).unwrap().len() > 100, "{args:?}");
    }
}

#[test]
fn what_does_not_say_that_it_is_a_result_is_replaced_only_where_the_user_says_so() {
    let folder = tempdir().unwrap();
    let cases = [
        ("recipe.toml", "seed = 1\n"),
        ("metrics.jsonl", "{\"kind\":\"train\",\"step\":1}\n"),
        ("rows.csv", "text,label\nfine,1\n"),
        ("main.rs", "fn main() {}\n"),
        ("package.json", "{\"name\": \"a\"}\n"),
        ("notes.txt", "demo: Marian\n"),
        ("page.html", "<!DOCTYPE html>\n<html><head></head></html>\n"),
    ];
    for (name, before) in cases {
        let file = folder.path().join(name);
        std::fs::write(&file, before).unwrap();
        let text = spares(&file, folder.path(), &["flow", "--format", "svg", "-o", name]);
        assert!(text.contains("--force"), "{text}");
        let forced = ["flow", "--format", "svg", "-o", name, "--force"];
        fine(&command(&forced).current_dir(folder.path()).output().unwrap());
        assert!(std::fs::read_to_string(&file).unwrap().starts_with("<svg"), "{name}");
    }
    // A conversion has a name of its own.
    std::fs::write(folder.path().join("notes.txt"), "mine\n").unwrap();
    let convert = ["convert", "demo", "notes.txt", "--to", "safetensors", "--allow", "untie"];
    spares(&folder.path().join("notes.txt"), folder.path(), &convert);
    // Text has no mark, so its own result needs the word, too; an empty file is no loss.
    std::fs::write(folder.path().join("flow.txt"), "").unwrap();
    fine(&command(&["flow", "-o", "flow.txt"]).current_dir(folder.path()).output().unwrap());
    spares(&folder.path().join("flow.txt"), folder.path(), &["flow", "-o", "flow.txt"]);
}

#[test]
fn texts_that_were_read_are_not_written_over() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("pairs.tsv"), "A dog runs.\tEin Hund rennt.\n").unwrap();
    std::fs::write(at("v.en"), "A dog runs.\n").unwrap();
    spares(&at("pairs.tsv"), folder.path(), &["doctor", "demo", "--pairs", "pairs.tsv", "-o", "pairs.tsv"]);
    spares(&at("v.en"), folder.path(), &["generate", "demo", "--src-file", "v.en", "-o", "v.en"]);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/worked/cross.toml");
    std::fs::copy(example, at("cross.toml")).unwrap();
    spares(&at("cross.toml"), folder.path(), &["check", "cross.toml", "-o", "cross.toml"]);
}

#[test]
fn a_recording_that_was_heard_is_not_written_over() {
    let folder = tempdir().unwrap();
    let wav = folder.path().join("a.wav");
    std::fs::write(&wav, silence(1600)).unwrap();
    let whisper = fixture("whisper");
    let trace = ["trace", &whisper, "--audio", "a.wav", "--tgt-ids", "1", "-o", "a.wav"];
    spares(&wav, folder.path(), &trace);
}

/// A wav of 16 kHz, one channel, 16 bits.
fn silence(samples: u32) -> Vec<u8> {
    let data = samples * 2;
    let mut wav = b"RIFF".to_vec();
    wav.extend((36 + data).to_le_bytes());
    wav.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    wav.extend(16_000u32.to_le_bytes());
    wav.extend(32_000u32.to_le_bytes());
    wav.extend(b"\x02\0\x10\0data");
    wav.extend(data.to_le_bytes());
    wav.resize(wav.len() + data as usize, 0);
    wav
}

#[test]
fn what_diff_has_read_is_not_written_over() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let trace = at("t").display().to_string();
    fine(&attnscope(&["trace", "demo", "--src", "A dog runs.", "--save", &trace]));
    std::fs::write(at("ok.map"), "# nothing\n").unwrap();
    let diff = |more: &[&'static str]| [&["diff", "t", "t"], more].concat();
    spares(&at("ok.map"), folder.path(), &diff(&["--map", "ok.map", "-o", "ok.map"]));
    spares(&at("t/trace.json"), folder.path(), &diff(&["-o", "t/trace.json"]));
    spares(&at("t/trace.safetensors"), folder.path(), &diff(&["-o", "t/trace.safetensors"]));
}

#[test]
fn an_output_that_is_a_folder_is_said_to_be_one() {
    let folder = tempdir().unwrap();
    let name = folder.path().display().to_string();
    let output = attnscope(&["flow", "-o", &name]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("found a folder") && text.contains("the name of a file in it"), "{text}");
}

#[cfg(unix)]
#[test]
fn a_pipe_in_place_of_a_configuration_is_refused() {
    for name in ["config.json", "generation_config.json"] {
        let folder = copy_of("bart");
        let pipe = folder.path().join(name);
        let _ = std::fs::remove_file(&pipe);
        fine(&std::process::Command::new("mkfifo").arg(&pipe).output().unwrap());
        let output = attnscope(&["inspect", &folder.path().display().to_string()]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(&format!("{name}: not a regular file")), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn a_limit_on_files_is_answered_with_room_and_not_with_permissions() {
    let folder = tempdir().unwrap();
    let limited = |limit: &str, args: &str| {
        let script = format!("ulimit {limit}; exec {} {args}", env!("CARGO_BIN_EXE_attnscope"));
        let mut shell = std::process::Command::new("sh");
        let output = shell.args(["-c", &script]).current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args}: {}", stderr(&output));
        stderr(&output)
    };
    let text = limited("-f 8", "convert demo out.safetensors");
    assert!(text.contains("out.safetensors") && text.contains("help: raise the limit"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    if Path::new("/dev/full").exists() {
        let output = attnscope(&["convert", "demo", "/dev/full", "--to", "safetensors"]);
        let text = stderr(&output);
        assert!(text.contains("help: free some space on that disk"), "{text}");
    }
    let text = limited("-n 4", &format!("inspect {}", fixture("bart-sharded")));
    assert!(text.contains("ulimit -n"), "{text}");
}

/// The page of a report is HTML: a terminal is spared it, a pipe gets it, a result of before is replaced.
#[cfg(unix)]
#[test]
fn a_report_is_not_printed_on_a_terminal() {
    let folder = tempdir().unwrap();
    let name = env!("CARGO_BIN_EXE_attnscope");
    // `script` runs a command on a terminal of its own.
    let on_terminal = |arguments: &str| {
        let line = format!("'{name}' report toy --repair-time 0 {arguments}");
        let mut script = std::process::Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).current_dir(folder.path());
        script.stdin(std::process::Stdio::null()).output()
    };
    let Ok(refused) = on_terminal("") else {
        println!("skipped: script not found");
        return;
    };
    let text = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("error: ") && text.contains("--output report.html"), "{text}");
    assert!(!text.contains("<html"), "{text}");
    for _ in 0..2 {
        let written = on_terminal("--output report.html --quiet").unwrap();
        assert_eq!(written.status.code(), Some(0), "{}", String::from_utf8_lossy(&written.stdout));
    }
    assert!(std::fs::read_to_string(folder.path().join("report.html")).unwrap().contains("<html"));
    let piped = attnscope(&["report", "toy", "--repair-time", "0"]);
    fine(&piped);
    assert!(String::from_utf8_lossy(&piped.stdout).starts_with("<!DOCTYPE html>"));
    // What may not be replaced is refused before the work.
    let model = copy_of("bart");
    let weights = model.path().join("model.safetensors");
    spares(&weights, model.path(), &["report", "toy", "--output", "model.safetensors"]);
}
