//! The program as its user meets it: exit codes, error and help lines, nothing half written.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::io::Read;
use std::process::Stdio;

use attnscope::checkpoint::Checkpoint;
use common::{attnscope, command, fixture, stderr, stdout};
use serde_json::Value;
use tempfile::tempdir;

/// Exit 2, an error line that names the file, a help line, nothing on standard output.
fn refused(args: &[&str], names: &str) -> String {
    let output = attnscope(args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert!(text.starts_with("error: ") && text.contains("\nhelp: "), "{args:?}: {text}");
    assert!(text.contains(names), "{args:?}: {text} does not name {names:?}");
    assert_eq!(text.lines().count(), 2, "{args:?}: {text}");
    text
}

#[test]
fn files_that_are_no_checkpoints() {
    let folder = tempdir().unwrap();
    let cases: &[(&str, &[u8], &str)] = &[
        ("empty.safetensors", b"", "empty"),
        ("notes.txt", b"Dear diary, today I trained a model.\n", "text"),
        ("page.bin", b"<!DOCTYPE html><html><body>Sign in</body></html>", "HTML"),
        ("lfs.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "LFS"),
        ("v1.apr", b"APRN\x01\x00\x00\x00\x00\x00\x00\x00", "version 1"),
        ("zeros.pt", &[0; 512], "zeros"),
        ("noise.gguf", b"\xde\xad\xbe\xef\x01\x02\x03\x04\x05\x06", "de ad be ef"),
    ];
    for (name, bytes, says) in cases {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        let file = file.display().to_string();
        for command in ["inspect", "flow", "summary"] {
            let text = refused(&[command, &file], name);
            assert!(text.contains(says), "{text}");
        }
        let target = folder.path().join("out.apr");
        refused(&["convert", &file, &target.display().to_string()], name);
        assert!(!target.exists());
    }
    refused(&["inspect", "/no/such/file"], "/no/such/file");
}

/// A folder may be called anything; a terminal must not obey its name.
#[cfg(unix)]
#[test]
fn names_of_models_are_shown_and_not_obeyed() {
    let folder = tempdir().unwrap();
    let model = folder.path().join("a\u{1b}[31m\u{202e}\nzz");
    std::fs::create_dir(&model).unwrap();
    for file in ["model.safetensors", "config.json"] {
        std::fs::copy(fixture(&format!("marian/{file}")), model.join(file)).unwrap();
    }
    let model = model.display().to_string();
    let ids = ["--src-ids", "5,6,0"];
    for args in [vec!["inspect"], vec!["flow"], vec!["summary"], vec!["doctor"]]
        .into_iter()
        .chain(["trace", "masks", "generate"].map(|command| [&[command][..], &ids].concat()))
    {
        let args: Vec<&str> = [&args[..1], &[model.as_str()], &args[1..]].concat();
        let output = attnscope(&args);
        let said = stdout(&output) + &stderr(&output);
        let obeyed = ['\u{1b}', '\u{202e}'].iter().any(|c| said.contains(*c)) || said.contains("\nzz");
        assert!(!obeyed, "{args:?}: {said:?}");
    }
}

#[test]
fn configs_that_cannot_be_used() {
    let cases = [
        ("{ not json", "line 1"),
        ("[1, 2]", "JSON object"),
        (r#"{"model_type": 7}"#, "model_type"),
        (r#"{"model_type": "bart", "d_model": "wide"}"#, "d_model"),
        (r#"{"model_type": "bart", "encoder_attention_heads": -4}"#, "encoder_attention_heads"),
        (r#"{"model_type": "bart", "scale_embedding": "yes"}"#, "scale_embedding"),
    ];
    for (config, names) in cases {
        let folder = tempdir().unwrap();
        std::fs::copy(fixture("bart/model.safetensors"), folder.path().join("model.safetensors")).unwrap();
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        refused(&["flow", &folder.path().display().to_string()], names);
    }
}

#[test]
fn bad_usage_is_exit_2() {
    for args in
        [&["flow", "--width", "10"][..], &["flow", "--format", "gif"], &["nonsense"], &["convert", "demo"]]
    {
        let output = attnscope(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).starts_with("error:"), "{args:?}");
    }
    refused(&["flow", "--layer", "decoder.9"], "decoder.9");
    refused(&["convert", "demo", "out.gguf"], "out.gguf");
    assert_eq!(attnscope(&["--help"]).status.code(), Some(0));
}

#[test]
fn json_is_json_with_the_promised_keys() {
    let flow: Value = serde_json::from_str(&stdout(&attnscope(&["flow", "--format", "json"]))).unwrap();
    assert_eq!(flow["schema"], 1);
    let nodes = flow["nodes"].as_array().unwrap();
    for key in ["path", "op", "inputs", "dims", "shape", "weights"] {
        assert!(nodes.iter().all(|n| n.get(key).is_some()), "{key}");
    }
    let scores = nodes.iter().find(|n| n["path"] == "decoder.1.cross_attn.scores").unwrap();
    assert_eq!(scores["dims"], serde_json::json!(["B", "H", "T", "S"]));
    assert_eq!(scores["shape"], serde_json::json!([null, 4, null, null]));
    let stats: Value =
        serde_json::from_str(&stdout(&attnscope(&["inspect", "--stats", "--format", "json"]))).unwrap();
    assert_eq!(stats["tensors"].as_array().unwrap().len(), 86);
    assert_eq!(stats["tensors"][0]["stats"]["zeros"], 4000);
    let summary: Value = serde_json::from_str(&stdout(&attnscope(&["summary", "--format", "json"]))).unwrap();
    assert_eq!(summary["totals"]["parameters"], 1_174_528);
}

#[test]
fn a_locale_without_unicode_gets_ascii() {
    for locale in ["C", "POSIX", "en_US.ISO-8859-1"] {
        let output = command(&["flow"]).env("LC_ALL", locale).output().unwrap();
        assert!(output.stdout.is_ascii(), "{locale}");
        assert!(stdout(&output).contains("sqrt"), "{locale}");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let mut child = command(&["summary"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 16];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn output_goes_to_a_file_whole_or_not_at_all() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("flow.svg");
    let to = file.display().to_string();
    assert_eq!(attnscope(&["flow", "--format", "svg", "--output", &to]).status.code(), Some(0));
    assert!(std::fs::read_to_string(&file).unwrap().ends_with("</svg>\n"));
    refused(&["flow", "--output", "/no/such/folder/x.txt"], "/no/such/folder");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Every tensor of two checkpoints, bit for bit.
fn assert_same_tensors(a: &str, b: &str) {
    let [a, b] = [a, b].map(|p| Checkpoint::open(p.as_ref()).unwrap());
    assert_eq!(a.tensors().len(), b.tensors().len());
    for t in a.tensors() {
        let other = b.tensor(&t.name).unwrap_or_else(|| panic!("{} is gone", t.name));
        assert_eq!((t.dtype, &t.shape), (other.dtype, &other.shape), "{}", t.name);
        assert_eq!(a.raw(t).unwrap(), b.raw(other).unwrap(), "{}", t.name);
    }
}

#[test]
fn conversions_keep_every_bit() {
    let folder = tempdir().unwrap();
    let sources = [
        fixture("bart"),
        fixture("bart-sharded"),
        fixture("whisper-openai/tiny.pt"),
        fixture("whisper-ggml/ggml-tiny.bin"),
        fixture("torch-nn/model.pt"),
    ];
    for (i, source) in sources.iter().enumerate() {
        for ending in ["apr", "safetensors", "npz"] {
            let target = folder.path().join(format!("{i}.{ending}")).display().to_string();
            let done = attnscope(&["convert", source, &target, "--allow", "metadata"]);
            assert_eq!(done.status.code(), Some(0), "{source} to {ending}: {}", stderr(&done));
            assert_same_tensors(source, &target);
        }
    }
}

#[test]
fn a_converted_model_is_still_known() {
    let folder = tempdir().unwrap();
    for ending in ["apr", "safetensors"] {
        let target = folder.path().join(format!("out.{ending}")).display().to_string();
        assert_eq!(attnscope(&["convert", "demo", &target]).status.code(), Some(0));
        let opened = common::open(&target, None);
        let model = opened.model().unwrap();
        let demo = common::open("demo", None);
        assert_eq!(model.wiring, demo.model().unwrap().wiring, "{ending}");
        assert!(model.obstacles.is_empty(), "{ending}: {:?}", model.obstacles);
    }
}

#[test]
fn losses_are_refused_until_they_are_allowed() {
    let folder = tempdir().unwrap();
    let target = |ending: &str| folder.path().join(format!("out.{ending}")).display().to_string();
    let gguf = fixture("formats/gguf/every-type.gguf");
    let text = refused(&["convert", &gguf, &target("npz"), "--allow", "metadata"], "every-type.gguf");
    assert!(text.contains("q2_k") && text.contains("not read"), "{text}");
    let text = refused(&["convert", "demo", &target("npz")], "demo");
    assert!(text.contains("--allow metadata"), "{text}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    // A type whose values are not read is refused whatever is allowed.
    let text = refused(
        &[
            "convert",
            &gguf,
            &target("npz"),
            "--allow",
            "metadata",
            "--allow",
            "dequantize",
            "--allow",
            "widen",
        ],
        "every-type.gguf",
    );
    assert!(text.contains("not read"), "{text}");
}

#[test]
fn every_loss_is_named_at_once() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("out.npz").display().to_string();
    // Tied names share bytes in the old file, and a config stands beside it.
    let text = refused(&["convert", &fixture("marian-old"), &target], "marian-old");
    for flag in ["--allow untie", "--allow metadata"] {
        assert!(text.contains(flag), "{text}");
    }
    let ggml = fixture("whisper-ggml/ggml-tiny.bin");
    let text = refused(
        &["convert", &ggml, &folder.path().join("out.safetensors").display().to_string()],
        "ggml-tiny",
    );
    assert!(text.contains("the vocabulary") && text.contains("--allow metadata"), "{text}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_modes_kept() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempdir().unwrap();
    let (real, link) = (folder.path().join("real.txt"), folder.path().join("link.txt"));
    std::fs::write(&real, "before").unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&real, &link).unwrap();
    let output = attnscope(&["flow", "--force", "-o", &link.display().to_string()]);
    assert_eq!(output.status.code(), Some(0));
    assert!(std::fs::read_to_string(&real).unwrap().contains("cross_attn"));
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    // A device is written to, never replaced.
    assert_eq!(attnscope(&["flow", "-o", "/dev/null"]).status.code(), Some(0));
    assert!(!std::path::Path::new("/dev/null").is_file());
    refused(&["flow", "-o", "/dev/full"], "/dev/full");
}

#[test]
fn totals_that_do_not_fit_are_refused() {
    let text = refused(
        &["summary", "--batch", "1000000", "--src-len", "100000000", "--tgt-len", "100000000"],
        "64 bits",
    );
    assert!(text.contains("--batch"), "{text}");
}

#[test]
fn one_changed_byte_of_an_apr_file_is_an_error() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("demo.apr");
    let path = target.display().to_string();
    assert_eq!(attnscope(&["convert", "demo", &path]).status.code(), Some(0));
    let mut bytes = std::fs::read(&target).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&target, &bytes).unwrap();
    let text = refused(&["inspect", &path], "demo.apr");
    assert!(text.contains("checksum"), "{text}");
    std::fs::write(&target, &bytes[..middle]).unwrap();
    refused(&["flow", &path], "demo.apr");
}

#[test]
fn a_pickle_that_would_run_something_is_listed_and_not_run() {
    let output = attnscope(&["inspect", &fixture("formats/pytorch/mixed.pt")]);
    let text = stdout(&output);
    assert!(text.contains("system") && text.contains("asks to be called"), "{text}{}", stderr(&output));
}

#[test]
fn the_help_shows_placeholders_as_they_are_written() {
    let text = stdout(&attnscope(&["diff", "--help"]));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("`enc.layer.{i}.attn = encoder.{i}.self_attn.out`"), "{text}");
}

#[test]
fn what_is_wrong_with_an_argument_is_said_of_the_argument() {
    for eps in ["-1", "0", "7"] {
        let text = refused(&["trace", "demo", "--wiring", &format!("norm_eps={eps}")], "norm_eps");
        assert!(text.contains("a small positive number"), "{text}");
    }
    let text = refused(&["flow", ""], "\"\"");
    assert!(text.contains("a checkpoint file, a folder"), "{text}");
    refused(&["trace", "demo", "--src", "A dog", "--row", "1"], "the batch has 1 row\n");
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_is_not_allowed_is_refused_by_every_command() {
    let bart = fixture("bart");
    let tokens = ["--src-ids", "5,6", "--tgt-ids", "2"];
    for args in [&["diff", "--checkpoint", &bart, &bart][..], &[&["trace", &bart][..], &tokens].concat()] {
        let text = refused(&[args, &["--memory", "1M"]].concat(), "are left of what was allowed");
        assert!(text.contains("allow more with --memory"), "{text}");
    }
    // The doctor says what it could not check without a run.
    let output = attnscope(&["doctor", "demo", "--memory", "1M"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (_, not_checked) = text.split_once("\nnot checked\n").unwrap();
    for words in ["wiring-mismatch", "first-nan", "left of what was allowed", "allow more with --memory"] {
        assert!(not_checked.contains(words), "{words}: {text}");
    }
}

#[cfg(unix)]
#[test]
fn a_small_stack_is_enough() {
    let script = format!("ulimit -s 64; exec {} flow demo", env!("CARGO_BIN_EXE_attnscope"));
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn one_node_is_not_called_nodes() {
    let folder = tempdir().unwrap();
    let trace = folder.path().join("t").display().to_string();
    let saved = attnscope(&["trace", "demo", "--src", "A dog", "--layer", "logits", "--save", &trace]);
    assert_eq!(saved.status.code(), Some(0), "{}", stderr(&saved));
    let text = stdout(&attnscope(&["diff", &trace, &trace]));
    assert!(text.contains("no difference: 1 node compared"), "{text}");
}

#[test]
fn usage_errors_end_with_a_help_line() {
    for (args, help) in [
        (&["diff", "--nosuch", "a", "b"][..], "help: `attnscope diff --help` lists its options"),
        (&["trace", "demo", "--heads", "0"], "help: `attnscope trace --help` lists its options"),
        (&["nosuchcommand"], "help: `attnscope --help` lists its options"),
    ] {
        let output = attnscope(args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.starts_with("error: "), "{args:?}: {text}");
        assert_eq!(text.lines().last(), Some(help), "{args:?}: {text}");
    }
}

#[cfg(unix)]
#[test]
fn a_name_that_is_not_utf_8_has_a_way_out() {
    use std::os::unix::ffi::OsStrExt;
    let output = command(&["inspect"]).arg(std::ffi::OsStr::from_bytes(b"mod\xffel.pt")).output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.lines().last().unwrap().starts_with("help: rename the file"), "{text}");
}

#[test]
fn a_cut_zip_file_is_called_cut_short() {
    let folder = tempdir().unwrap();
    let whole = std::fs::read(fixture("whisper-openai/tiny.pt")).unwrap();
    let file = folder.path().join("cut.pt");
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let text = refused(&["inspect", &file.display().to_string()], "cut.pt");
    assert!(text.contains("cut short: its zip directory, which belongs at its end, is missing"), "{text}");
}

#[test]
fn every_shell_gets_a_script_and_every_command_a_page() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout(&attnscope(&["completions", shell]));
        assert!(script.contains("generate") && script.contains("align-heads"), "{shell}: {script}");
    }
    let manual = stdout(&attnscope(&["man"]));
    assert!(manual.starts_with(".ie"), "{manual}");
    let commands = [
        "inspect", "flow", "summary", "trace", "generate", "masks", "explain", "check", "doctor", "diff",
        "convert",
    ];
    for command in commands {
        assert!(manual.contains(command), "{command}");
        let page = stdout(&attnscope(&["man", command]));
        assert!(page.contains(&format!(".TH attnscope-{command} 1")), "{page}");
        assert!(page.contains("\\-\\-help"), "{command}: {page}");
    }
    let wrong = attnscope(&["man", "nosuch"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("there are: inspect, flow"), "{}", stderr(&wrong));
}
