//! Large files: `cargo bench -p attnscope-cli --bench large`.
//!
//! Makes a sparse 10 GB checkpoint and a 1 GB one in the temporary folder (or the folder given), runs the program on
//! them as a user would, and prints wall time and peak resident memory of each run, beside `cat` on the same file.
//! Not divan: what is measured is a whole process, its memory included.

#![allow(clippy::expect_used)] // A benchmark that cannot be set up has nothing to report.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

const RUNS: usize = 15;

fn main() {
    let folder = match std::env::args().nth(1).filter(|a| !a.starts_with("--")) {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    }
    .expect("a temporary folder");
    let program = env!("CARGO_BIN_EXE_attnscope");
    let ten = folder.path().join("ten.safetensors");
    // Only the header takes room on the disk.
    bart(&ten, Shape { layers: 24, width: 3072, ffn: 8192, vocab: 50_000 }, "F16", false);
    println!("{:<44} {:>10} {:>10} {:>10}", size_of(&ten), "best", "median", "peak RSS");
    report("inspect", &[program, "inspect", text(&ten), "--heads", "16"]);
    report("flow", &[program, "flow", text(&ten), "--heads", "16"]);
    report("flow --format svg", &[program, "flow", text(&ten), "--heads", "16", "--format", "svg"]);
    std::fs::remove_file(&ten).expect("remove");
    for dtype in ["F32", "F16"] {
        let one = folder.path().join(format!("one-{dtype}.safetensors"));
        let layers = if dtype == "F32" { 5 } else { 13 };
        bart(&one, Shape { layers, width: 1024, ffn: 4096, vocab: 100_000 }, dtype, true);
        println!("\n{}, from the page cache", size_of(&one));
        let cat = report("cat FILE > /dev/null", &["cat", text(&one)]);
        let stats = report("inspect --stats", &[program, "inspect", text(&one), "--heads", "16", "--stats"]);
        println!("{:<44} {:>9.2}x", "speed of --stats beside cat", cat.as_secs_f64() / stats.as_secs_f64());
        std::fs::remove_file(&one).expect("remove");
    }
    println!();
    report("no arguments: the tour on demo", &[program]);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

fn size_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    format!("{name}, {:.2} GB", std::fs::metadata(path).expect("size").len() as f64 / 1e9)
}

/// Runs a command, prints its best and median wall time and the most memory it held; gives the best back.
fn report(name: &str, command: &[&str]) -> Duration {
    let mut times = Vec::new();
    let mut peak = 0;
    for run in 0..=RUNS {
        let start = Instant::now();
        let child =
            Command::new(command[0]).args(&command[1..]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let memory = wait(child.expect("the command starts").id());
        // The first run warms the page cache.
        if run > 0 {
            times.push(start.elapsed());
            peak = peak.max(memory);
        }
    }
    times.sort();
    let ms = |d: Duration| format!("{:.1} ms", d.as_secs_f64() * 1e3);
    println!("{name:<44} {:>10} {:>10} {:>7.1} MB", ms(times[0]), ms(times[RUNS / 2]), peak as f64 / 1e3);
    times[0]
}

/// Waits for a child and gives its peak resident memory in kilobytes.
#[allow(unsafe_code)] // The standard library does not tell what a child has used.
fn wait(pid: u32) -> i64 {
    // SAFETY: an all-zero rusage is a valid one, and both pointers are to locals that outlive the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let mut status = 0;
        libc::wait4(pid as libc::pid_t, &mut status, 0, &mut usage);
        assert_eq!(status, 0, "the command failed");
        usage.ru_maxrss
    }
}

struct Shape {
    layers: usize,
    width: usize,
    ffn: usize,
    vocab: usize,
}

/// A checkpoint in BART's layout. `fill` writes values; without it the file is a header and a hole.
fn bart(path: &Path, shape: Shape, dtype: &str, fill: bool) {
    let Shape { layers, width, ffn, vocab } = shape;
    let mut tensors: Vec<(String, Vec<usize>)> = vec![("model.shared.weight".into(), vec![vocab, width])];
    for stack in ["encoder", "decoder"] {
        tensors.push((format!("model.{stack}.embed_positions.weight"), vec![1026, width]));
        norm(&mut tensors, &format!("model.{stack}.layernorm_embedding"), width);
        for n in 0..layers {
            let layer = format!("model.{stack}.layers.{n}");
            let attentions: &[&str] =
                if stack == "encoder" { &["self_attn"] } else { &["self_attn", "encoder_attn"] };
            for attention in attentions {
                for map in ["q_proj", "k_proj", "v_proj", "out_proj"] {
                    linear(&mut tensors, &format!("{layer}.{attention}.{map}"), width, width);
                }
                norm(&mut tensors, &format!("{layer}.{attention}_layer_norm"), width);
            }
            linear(&mut tensors, &format!("{layer}.fc1"), ffn, width);
            linear(&mut tensors, &format!("{layer}.fc2"), width, ffn);
            norm(&mut tensors, &format!("{layer}.final_layer_norm"), width);
        }
    }
    write(path, &tensors, dtype, fill);
}

fn linear(tensors: &mut Vec<(String, Vec<usize>)>, name: &str, out: usize, input: usize) {
    tensors.push((format!("{name}.weight"), vec![out, input]));
    tensors.push((format!("{name}.bias"), vec![out]));
}

fn norm(tensors: &mut Vec<(String, Vec<usize>)>, name: &str, width: usize) {
    tensors.push((format!("{name}.weight"), vec![width]));
    tensors.push((format!("{name}.bias"), vec![width]));
}

fn write(path: &Path, tensors: &[(String, Vec<usize>)], dtype: &str, fill: bool) {
    let size = if dtype == "F32" { 4 } else { 2 };
    let mut header = Map::new();
    let mut at = 0usize;
    for (name, shape) in tensors {
        let end = at + shape.iter().product::<usize>() * size;
        header.insert(name.clone(), json!({ "dtype": dtype, "shape": shape, "data_offsets": [at, end] }));
        at = end;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = File::create(path).expect("create");
    file.write_all(&(header.len() as u64).to_le_bytes()).expect("write");
    file.write_all(&header).expect("write");
    if fill {
        // Small numbers of both signs, the same in every block.
        let block: Vec<u8> = (0..1 << 18).flat_map(|i: u32| value(i, dtype)).collect();
        let mut left = at;
        while left > 0 {
            let n = left.min(block.len());
            file.write_all(&block[..n]).expect("write");
            left -= n;
        }
    } else {
        file.seek(SeekFrom::Current(at as i64 - 1)).expect("seek");
        file.write_all(&[0]).expect("write");
    }
}

fn value(i: u32, dtype: &str) -> Vec<u8> {
    let x = (f64::from(i.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24) - 0.5) as f32;
    match dtype {
        "F32" => x.to_le_bytes().to_vec(),
        _ => half::f16::from_f32(x).to_le_bytes().to_vec(),
    }
}
