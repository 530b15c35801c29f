//! Audits: the same values however the work is divided, and nothing lost or doubled.

#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

use std::fs;
use std::path::{Path, PathBuf};

use attnscope::corpus::{ColumnNames, KernelOptions, Shard, Task, audit_batch, input_schema};
use attnscope::{AuditCorpus, AuditOptions, Failure, Limits, Model};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

const PAIRS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/demo-pairs.tsv");

fn demo() -> Model {
    attnscope::open("demo").unwrap()
}

/// Sixty pairs of several lengths, some twice.
fn pairs(dir: &Path) -> PathBuf {
    let text = fs::read_to_string(PAIRS).unwrap();
    let lines: Vec<&str> = text.lines().take(50).collect();
    let file = dir.join("pairs.tsv");
    fs::write(&file, [&lines[..], &lines[..10]].concat().join("\n")).unwrap();
    file
}

fn options(part_rows: usize) -> AuditOptions {
    AuditOptions { part_rows: Some(part_rows), alignments: true, ..AuditOptions::default() }
}

fn run(model: &Model, corpus: &Path, out: &Path, options: &AuditOptions) -> Result<u64, Failure> {
    let answer = model.audit(&AuditCorpus::Pairs(corpus.to_owned()), out, options)?;
    Ok(answer.summary.sentences)
}

/// Every row of a folder as text, sorted by row. The text of a float names its bits.
fn rows(folder: &Path) -> Vec<(i64, String)> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "parquet") {
            continue;
        }
        let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(path).unwrap()).unwrap();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            for i in 0..batch.num_rows() {
                let row = batch.column_by_name("row").unwrap().as_primitive::<Int64Type>().value(i);
                all.push((row, format!("{:?}", batch.slice(i, 1))));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn values_do_not_depend_on_parts_shards_or_threads() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = pairs(dir.path());
    let whole = dir.path().join("whole");
    assert_eq!(run(&demo(), &corpus, &whole, &options(1000)).unwrap(), 60);
    let expected = rows(&whole);
    assert_eq!(expected.len(), 60);
    let alone = demo().with_limits(Limits { threads: Some(1), ..Limits::default() });
    let parts = dir.path().join("parts");
    run(&alone, &corpus, &parts, &options(7)).unwrap();
    assert!(rows(&parts) == expected, "parts of 7 rows, on one thread");
    let shards: Vec<PathBuf> = (0..3).map(|i| dir.path().join(format!("shard-{i}"))).collect();
    for (index, shard) in shards.iter().enumerate() {
        let options = AuditOptions { shard: Shard { index, count: 3 }, ..options(7) };
        run(&demo(), &corpus, shard, &options).unwrap();
    }
    let merged = dir.path().join("merged");
    let answer = attnscope::merge_audits(&shards, &merged, None).unwrap();
    assert!(rows(&merged) == expected, "three shards, merged");
    assert_eq!(answer.summary.sentences, 60);
    // Sketches over the same values in other parts: moments are equal up to rounding, quantiles up to their rank error.
    let [one, other] =
        [&whole, &merged].map(|folder| attnscope::read_audit(folder, None, 0).unwrap().summary);
    for (a, b) in one.heads.iter().zip(&other.heads) {
        for (a, b) in a.measures.iter().zip(&b.measures) {
            let (Some(a), Some(b)) = (a.distribution.mean, b.distribution.mean) else { continue };
            assert!((a - b).abs() <= 1e-12 * a.abs().max(1.0), "{a} {b}");
        }
    }
    // Twice the same shard, and one too few.
    let again = [&shards[..], &shards[..1]].concat();
    let failed = |shards: &[PathBuf]| {
        attnscope::merge_audits(shards, &dir.path().join("no"), None).unwrap_err().to_string()
    };
    assert!(failed(&again).starts_with("part 0 is in both "), "{}", failed(&again));
    assert!(failed(&shards[1..]).contains("3 of 9 parts are missing: 0, 3, 6"), "{}", failed(&shards[1..]));
    assert!(!dir.path().join("no").exists());
}

/// The kernel by itself, on a batch that somebody else made of the same rows in another order.
#[test]
fn the_kernel_gives_what_an_audit_writes() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = pairs(dir.path());
    let whole = dir.path().join("whole");
    run(&demo(), &corpus, &whole, &AuditOptions::default()).unwrap();
    let expected: Vec<String> = rows(&whole).into_iter().map(|(_, text)| text).collect();
    let text = fs::read_to_string(&corpus).unwrap();
    let sides: Vec<(&str, &str)> = text.lines().map(|line| line.split_once('\t').unwrap()).collect();
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use std::sync::Arc;
    let source: ArrayRef = Arc::new(sides.iter().map(|(source, _)| Some(*source)).collect::<StringArray>());
    let target: ArrayRef = Arc::new(sides.iter().map(|(_, target)| Some(*target)).collect::<StringArray>());
    let line: ArrayRef = Arc::new((1..=60).map(Some).collect::<Int64Array>());
    let table = RecordBatch::try_from_iter([("line", line), ("source", source), ("target", target)]).unwrap();
    let table = attnscope::corpus::with_swaps(&table, Task::Pairs).unwrap();
    assert!(input_schema().fields().iter().all(|field| table.column_by_name(field.name()).is_some()));
    let model = demo().audit_model(&attnscope::Input::default()).unwrap();
    let kernel = KernelOptions::default();
    let mut found = Vec::new();
    for from in (0..60).step_by(13) {
        let batch = table.slice(from, 13.min(60 - from));
        let measured = audit_batch(&model, &kernel, &batch).unwrap();
        found.extend((0..measured.num_rows()).map(|i| format!("{:?}", measured.slice(i, 1))));
    }
    let without_metadata = |text: &String| text.replace("\"attnscope.schema\": \"1\"", "");
    let strip = |all: &[String]| all.iter().map(without_metadata).collect::<Vec<_>>();
    let columns = |text: &String| text[text.find("columns").unwrap()..].to_owned();
    assert_eq!(
        strip(&found).iter().map(columns).collect::<Vec<_>>(),
        strip(&expected).iter().map(columns).collect::<Vec<_>>()
    );
}

#[test]
fn what_is_committed_is_not_measured_again_and_what_is_damaged_is() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = pairs(dir.path());
    let out = dir.path().join("out");
    run(&demo(), &corpus, &out, &options(7)).unwrap();
    let expected = rows(&out);
    fs::remove_file(out.join("part-00003.parquet")).unwrap();
    let part = out.join("part-00005.parquet");
    let bytes = fs::read(&part).unwrap();
    fs::write(&part, &bytes[..bytes.len() / 2]).unwrap();
    let resumed = AuditOptions { resume: true, ..options(7) };
    let answer = demo().audit(&AuditCorpus::Pairs(corpus.clone()), &out, &resumed).unwrap();
    let ran = answer.run.unwrap();
    assert_eq!((ran.measured, ran.skipped), (14, 46));
    assert!(rows(&out) == expected);
    // Another audit into the same folder.
    let failed = |options: &AuditOptions, corpus: &Path| run(&demo(), corpus, &out, options).unwrap_err();
    assert!(failed(&options(7), &corpus).error.ends_with("the folder holds an audit already"));
    let others = [
        (
            AuditOptions { part_rows: Some(8), ..resumed.clone() },
            "rows of a part: the audit there has 7, this one 8",
        ),
        (
            AuditOptions { alignments: false, ..resumed.clone() },
            "alignments: the audit there has true, this one false",
        ),
        (
            AuditOptions { shard: Shard { index: 0, count: 2 }, ..resumed.clone() },
            "shard: the audit there has 0/1",
        ),
    ];
    for (options, what) in others {
        let error = failed(&options, &corpus).error;
        assert!(error.contains(what), "{error}");
    }
    let other = dir.path().join("other.tsv");
    fs::write(&other, "A dog.\tEin Hund.\n").unwrap();
    assert!(failed(&resumed, &other).error.contains("corpus (SHA-256)"));
    let untied = attnscope::Opened::open("demo", Some(8)).unwrap();
    let error = run(&untied.into(), &corpus, &out, &resumed).unwrap_err().error;
    assert!(error.contains("model (SHA-256)"), "{error}");
    let manifest = fs::read_to_string(out.join("audit.json")).unwrap();
    fs::write(out.join("audit.json"), manifest.replace("\"schema\": 1", "\"schema\": 9")).unwrap();
    assert!(failed(&resumed, &corpus).error.ends_with("expected schema version 1, found 9"));
    assert!(rows(&out) == expected, "nothing was touched");
}

#[test]
fn a_folder_is_of_one_audit_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = pairs(dir.path());
    let out = dir.path().join("out");
    run(&demo(), &corpus, &out, &options(7)).unwrap();
    let lock = fs::File::options().write(true).open(out.join(".audit.lock")).unwrap();
    lock.lock().unwrap();
    let resumed = AuditOptions { resume: true, ..options(7) };
    let error = run(&demo(), &corpus, &out, &resumed).unwrap_err().error;
    assert!(error.ends_with("another audit is writing to the folder"), "{error}");
    let full = dir.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("thesis.tex"), "x").unwrap();
    let error = run(&demo(), &corpus, &full, &options(7)).unwrap_err().error;
    assert!(error.ends_with("expected an empty folder, or one of an audit, found thesis.tex"), "{error}");
    assert_eq!(fs::read_dir(&full).unwrap().count(), 1);
}

#[test]
fn rows_that_cannot_be_measured_are_counted_and_nothing_else_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = dir.path().join("pairs.tsv");
    let long = "dog ".repeat(60_000);
    let lines =
        format!("A dog runs.\tEin Hund läuft.\nno tab\nA cat.\t \n{long}\tEin Hund.\nA man.\tEin Mann.\n");
    fs::write(&corpus, lines).unwrap();
    let out = dir.path().join("out");
    let answer = demo().audit(&AuditCorpus::Pairs(corpus), &out, &AuditOptions::default()).unwrap();
    let summary = &answer.summary;
    assert_eq!((summary.rows, summary.sentences, summary.rejected), (5, 3, 2));
    assert_eq!((summary.truncated, summary.over_positions, summary.non_finite), (1, 1, 0));
    let rejects = fs::read_to_string(out.join("rejects.jsonl")).unwrap();
    assert_eq!(rejects.lines().count(), 2);
    assert!(
        rejects.contains("\"line\":2,\"row\":1,\"reason\":\"expected 2 columns, found one column\""),
        "{rejects}"
    );
}

/// Each with the file, what was expected, what was found, and what to do; and no folder is begun.
#[test]
fn a_corpus_that_cannot_be_read_is_refused_before_anything_is_written() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all("A dog.\tEin Hund.\nA cat.\tEine Katze.\n".repeat(50).as_bytes()).unwrap();
    let whole = gzip.finish().unwrap();
    let mut damaged = whole.clone();
    let checksum = damaged.len() - 6;
    damaged[checksum] ^= 1;
    let again = "copy or download the file again";
    let texts = "give rows with a text on every side";
    let cases: [(&str, &[u8], &str, &str); 7] = [
        ("cut.gz", &whole[..whole.len() / 2], "expected a whole gzip file, found one that is cut off", again),
        ("damaged.gz", &damaged, "expected a whole gzip file, found a damaged one: ", again),
        ("empty.tsv", b"", "expected rows that can be measured, found none", texts),
        (
            "one.tsv",
            b"A dog.\n",
            "expected rows that can be measured, found one that cannot: line 1: expected 2 columns, found one column",
            texts,
        ),
        (
            "null.jsonl",
            b"{\"source\":null,\"target\":\"b\"}\n",
            "found one that cannot: line 1: expected a text under \"source\", found null",
            texts,
        ),
        (
            "other.jsonl",
            b"{\"src\":\"a\",\"target\":\"b\"}\n",
            "expected a column \"source\", found \"src\", \"target\"",
            "NameColumns",
        ),
        ("cut.parquet", b"PAR1 but no more", "cut.parquet: ", "write or download the file again"),
    ];
    let failed = |file: &Path, out: &Path| run(&demo(), file, out, &AuditOptions::default()).unwrap_err();
    for (name, bytes, says, helps) in cases {
        let file = dir.path().join(name);
        fs::write(&file, bytes).unwrap();
        let failure = failed(&file, &out);
        assert!(failure.error.starts_with(&file.display().to_string()), "{name}: {failure}");
        assert!(failure.error.contains(says), "{name}: {failure}");
        assert!(format!("{:?}", failure.remedy).contains(helps), "{name}: {:?}", failure.remedy);
    }
    let folder = failed(dir.path(), &out);
    assert!(folder.error.ends_with(": expected a file, found a folder"), "{folder}");
    let missing = failed(&dir.path().join("none.tsv"), &out);
    assert!(missing.error.contains("none.tsv: No such file"), "{missing}");
    assert!(!out.exists());
    // The same of the folder that is to be written.
    let corpus = pairs(dir.path());
    let file = failed(&corpus, &corpus);
    assert!(file.error.ends_with(": expected a folder, found a file"), "{file}");
    let below = failed(&corpus, &corpus.join("out"));
    assert!(below.error.starts_with(&corpus.join("out").display().to_string()), "{below}");
    assert!(format!("{:?}", below.remedy).contains("may be read and written"), "{:?}", below.remedy);
}

#[test]
fn kept_columns_are_in_the_output_and_can_be_summed_up_by() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = dir.path().join("pairs.tsv");
    let rows = "source\ttarget\tdomain\nA dog runs.\tEin Hund läuft.\tanimals\nA man sleeps.\tEin Mann schläft.\tpeople\n";
    fs::write(&corpus, format!("{rows}A cat.\tEine Katze.\tanimals\n")).unwrap();
    let columns = ColumnNames { keep: vec!["domain".into()], ..ColumnNames::default() };
    let options = AuditOptions { columns, by: Some("domain".into()), ..AuditOptions::default() };
    let answer =
        demo().audit(&AuditCorpus::Pairs(corpus.clone()), &dir.path().join("out"), &options).unwrap();
    let groups: Vec<(Option<&str>, u64)> =
        answer.summary.groups.iter().map(|group| (group.value.as_deref(), group.sentences)).collect();
    assert_eq!(groups, [(Some("animals"), 2), (Some("people"), 1)]);
    let clash = ColumnNames { keep: vec!["nll".into()], ..ColumnNames::default() };
    fs::write(&corpus, "source\ttarget\tnll\nA dog.\tEin Hund.\t1\n").unwrap();
    let options = AuditOptions { columns: clash, ..AuditOptions::default() };
    let error =
        demo().audit(&AuditCorpus::Pairs(corpus), &dir.path().join("no"), &options).unwrap_err().error;
    assert!(error.contains("found a column \"nll\", which the output has for its own"), "{error}");
}

#[test]
fn a_model_gets_rows_of_its_own_kind() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = pairs(dir.path());
    let fixture = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
        attnscope::open(&path.display().to_string()).unwrap()
    };
    let gpt2 = fixture("gpt2");
    let failed =
        gpt2.audit(&AuditCorpus::Pairs(corpus.clone()), &dir.path().join("a"), &AuditOptions::default());
    let failed = failed.unwrap_err();
    assert!(
        failed.error.contains("it has no cross-attention that could be measured on a source"),
        "{failed}"
    );
    assert_eq!(failed.remedy, attnscope::Remedy::CorpusTexts);
    let failed =
        demo().audit(&AuditCorpus::Text(corpus.clone()), &dir.path().join("a"), &AuditOptions::default());
    assert_eq!(failed.unwrap_err().remedy, attnscope::Remedy::CorpusPairs);
    let failed =
        fixture("bert").audit(&AuditCorpus::Text(corpus), &dir.path().join("a"), &AuditOptions::default());
    assert!(failed.unwrap_err().error.contains("it predicts no text"));
    assert!(!dir.path().join("a").exists());
}

#[test]
fn two_audits_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = pairs(dir.path());
    let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
    run(&demo(), &corpus, &a, &AuditOptions::default()).unwrap();
    // The same weights, told to have eight heads.
    let other: Model = attnscope::Opened::open("demo", Some(8)).unwrap().into();
    run(&other, &corpus, &b, &AuditOptions::default()).unwrap();
    let found = attnscope::compare_audits(&a, &b).unwrap().comparison;
    let paired = found.paired.unwrap();
    assert!(found.same_corpus && paired.sentences == 60 && paired.low > 0.0, "{paired:?}");
    assert_eq!((found.heads.len(), found.only[0].len(), found.only[1].len()), (24, 0, 24));
    let same = attnscope::compare_audits(&a, &a).unwrap().comparison;
    assert_eq!(same.paired.map(|paired| (paired.mean, paired.low, paired.high)), Some((0.0, 0.0, 0.0)));
}

/// Twelve pairs, against Hugging Face's own forward pass (fixtures/audit/make.py).
#[test]
fn values_are_those_of_transformers() {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/audit");
    let text = fs::read_to_string(fixture.join("expected.jsonl")).unwrap();
    let expected: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    run(&demo(), &fixture.join("pairs.tsv"), &out, &AuditOptions::default()).unwrap();
    let part = fs::File::open(out.join("part-00000.parquet")).unwrap();
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(part).unwrap().build().unwrap();
    let batch = reader.next().unwrap().unwrap();
    assert_eq!(batch.num_rows(), expected.len());
    let close = |ours: Option<f64>, theirs: &serde_json::Value, tolerance: f64, what: &str| {
        let (Some(a), Some(b)) = (ours, theirs.as_f64()) else {
            assert!(ours.is_none() && theirs.is_null(), "{what}: {ours:?} {theirs}");
            return;
        };
        assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{what}: {a} {b}");
    };
    for i in 0..batch.num_rows() {
        let row = batch.column_by_name("row").unwrap().as_primitive::<Int64Type>().value(i);
        let theirs = &expected[usize::try_from(row).unwrap()];
        for name in ["nll", "nll_swapped"] {
            let ours = batch.column_by_name(name).unwrap().as_primitive::<Float64Type>().value(i);
            close(Some(ours), &theirs[name], 1e-4, &format!("row {row} {name}"));
        }
        for (list, key) in [("heads", "heads"), ("layers", "layers")] {
            let found = batch.column_by_name(list).unwrap().as_list::<i32>().value(i);
            let found = found.as_struct();
            let wanted = theirs[key].as_array().unwrap();
            assert_eq!(found.len(), wanted.len());
            for j in 0..found.len() {
                let path = found.column(0).as_string::<i32>().value(j);
                let head = (list == "heads").then(|| found.column(2).as_primitive::<Int32Type>().value(j));
                let same =
                    |one: &&serde_json::Value| one[0] == path && head.is_none_or(|head| one[1] == head);
                let values = wanted.iter().find(same).unwrap();
                let (skip, measures) = if head.is_some() {
                    (3, values[2].as_array().unwrap().clone())
                } else {
                    (2, vec![values[1].clone(), values[2].clone()])
                };
                for (column, theirs) in found.columns().iter().skip(skip).zip(&measures) {
                    let column = column.as_primitive::<Float32Type>();
                    let ours = column.is_valid(j).then(|| f64::from(column.value(j)));
                    close(ours, theirs, 1e-5, &format!("row {row} {path} {head:?}"));
                }
            }
        }
    }
}
