use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field};

use super::*;

fn written(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let file = dir.path().join(name);
    fs::write(&file, bytes).unwrap();
    file
}

fn named(source: &str, target: &str, keep: &[&str]) -> ColumnNames {
    ColumnNames {
        source: Some(source.into()),
        target: Some(target.into()),
        text: None,
        keep: keep.iter().map(|name| (*name).into()).collect(),
    }
}

/// Row, line, source and target.
fn seen(read: &CorpusRead) -> Vec<(i64, i64, &str, &str)> {
    let row = |row: &'_ CorpusRow| (row.row, row.line);
    let rows = read.rows.iter();
    rows.map(|r| (row(r).0, row(r).1, r.source.as_deref().unwrap_or_default(), r.target.as_str())).collect()
}

fn parquet(file: &Path, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(fs::File::create(file).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn one_corpus_in_four_forms() {
    let dir = tempfile::tempdir().unwrap();
    let plain = written(&dir, "a", b"a dog\tein Hund\n\na cat\teine Katze\r\n");
    let header = written(&dir, "b", b"id\tde\ten\n1\tein Hund\ta dog\n\n2\teine Katze\ta cat\n");
    let json = "{\"t\":{\"en\":\"a dog\",\"de\":\"ein Hund\"},\"id\":1}\n\n{\"t\":{\"en\":\"a cat\",\"de\":\"eine Katze\"}}\n";
    let json = written(&dir, "c", json.as_bytes());
    let table = dir.path().join("d");
    let texts = |texts: [&str; 2]| -> ArrayRef { Arc::new(StringArray::from(texts.to_vec())) };
    let field = |name| Arc::new(Field::new(name, DataType::Utf8, true));
    let pair = StructArray::from(vec![
        (field("en"), texts(["a dog", "a cat"])),
        (field("de"), texts(["ein Hund", "eine Katze"])),
    ]);
    parquet(&table, vec![("t", Arc::new(pair)), ("id", Arc::new(Int32Array::from(vec![Some(1), None])))]);
    let expected =
        |lines: [i64; 2]| [(0, lines[0], "a dog", "ein Hund"), (1, lines[1], "a cat", "eine Katze")];
    let kept = |read: &CorpusRead| read.rows.iter().flat_map(|row| row.kept.clone()).collect::<Vec<_>>();
    let read = |file: &Path, names: &ColumnNames| read_corpus(file, Task::Pairs, names).unwrap();
    assert_eq!(seen(&read(&plain, &ColumnNames::default())), expected([1, 3]));
    let found = read(&header, &named("en", "de", &["id"]));
    assert_eq!(seen(&found), expected([2, 4]));
    assert_eq!(kept(&found), [Some("1".to_owned()), Some("2".to_owned())]);
    for (file, lines) in [(json, [1, 3]), (table, [1, 2])] {
        let found = read(&file, &named("t.en", "t.de", &["id"]));
        assert_eq!(seen(&found), expected(lines));
        assert_eq!(kept(&found), [Some("1".to_owned()), None]);
    }
}

#[test]
fn bad_rows_are_rejected_with_their_line_and_the_others_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let lines: &[u8] = b"a\tb\nno tab\nc\t \n\td\n1\t2\t3\t4\t5\t6\t7\t8\t9\t10\n\xff\tx\ne\tf\n";
    let read = read_corpus(&written(&dir, "a", lines), Task::Pairs, &ColumnNames::default()).unwrap();
    assert_eq!(seen(&read), [(0, 1, "a", "b"), (6, 7, "e", "f")]);
    let reasons: Vec<(i64, i64, &str)> =
        read.rejects.iter().map(|reject| (reject.row, reject.line, reject.reason.as_str())).collect();
    assert_eq!(
        reasons,
        [
            (1, 2, "expected 2 columns, found one column"),
            (2, 3, "expected a text on both sides, found an empty target"),
            (3, 4, "expected a text on both sides, found an empty source"),
            (4, 5, "expected 2 columns, found 10 columns"),
            (5, 6, "expected UTF-8, found other bytes at byte 1"),
        ]
    );
    let json =
        "{\"source\":\"a\",\"target\":\"b\"}\n{\"source\":\"a\"}\n{\"source\":1,\"target\":\"b\"}\n{\"a\n";
    let read =
        read_corpus(&written(&dir, "b", json.as_bytes()), Task::Pairs, &ColumnNames::default()).unwrap();
    assert_eq!((read.rows.len(), read.rejects.len()), (1, 3));
    assert!(read.rejects[0].reason.contains("under \"target\", found only \"source\""), "{:?}", read.rejects);
}

#[test]
fn columns_that_are_not_there_are_named_with_those_that_are() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("a");
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    parquet(&table, vec![("src", texts.clone()), ("tgt", texts), ("n", numbers)]);
    let json = written(&dir, "b", b"{\"src\":\"a\",\"tgt\":\"b\",\"n\":1}\n");
    let lines = written(&dir, "c", b"src\ttgt\tn\na\tb\t1\n");
    let failed = |file: &Path, names: &ColumnNames| read_corpus(file, Task::Pairs, names).unwrap_err();
    for (file, names) in [
        (&table, ColumnNames::default()),
        (&json, ColumnNames::default()),
        (&lines, named("source", "tgt", &[])),
    ] {
        let error = failed(file, &names);
        assert!(
            error.to_string().ends_with("expected a column \"source\", found \"src\", \"tgt\", \"n\""),
            "{error}"
        );
        assert_eq!(error.remedy(), attnscope_checkpoint::Remedy::NameColumns);
    }
    let error = failed(&table, &named("src", "n", &[]));
    assert!(error.to_string().ends_with("column \"n\": expected texts, found Int32"), "{error}");
    assert!(matches!(failed(&table, &named("src", "tgt", &["m"])), AuditError::Column { .. }));
}

#[test]
fn files_that_hold_no_corpus_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let read = |bytes: &[u8]| {
        read_corpus(&written(&dir, "a", bytes), Task::Pairs, &ColumnNames::default()).unwrap_err()
    };
    assert!(
        read(b"").to_string().ends_with("expected rows that can be measured, found none"),
        "{}",
        read(b"")
    );
    let only_bad = read(b"one\ntwo\n");
    assert!(
        only_bad.to_string().contains("found 2 that cannot, the first: line 1: expected 2 columns"),
        "{only_bad}"
    );
    assert!(matches!(read(b"PAR1 but not really"), AuditError::Parquet { .. }));
    // A whole file, cut at every hundredth byte, or with one changed.
    let table = dir.path().join("b");
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    parquet(&table, vec![("source", texts.clone()), ("target", texts)]);
    let whole = fs::read(&table).unwrap();
    for cut in 4..whole.len() {
        read(&whole[..cut]);
    }
    for place in 4..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 0x55;
        // What is still Parquet may be read; nothing else is promised than an answer.
        let _ = read_corpus(&written(&dir, "c", &changed), Task::Pairs, &ColumnNames::default());
    }
    let missing = read_corpus(&dir.path().join("none"), Task::Pairs, &ColumnNames::default()).unwrap_err();
    assert!(matches!(missing, AuditError::Io { .. }), "{missing}");
}

#[test]
fn a_text_a_line_may_have_tabs() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(&dir, "a", b"one\ttwo\n \nthree\n");
    let read = read_corpus(&file, Task::Text, &ColumnNames::default()).unwrap();
    assert_eq!(seen(&read), [(0, 1, "", "one\ttwo"), (1, 3, "", "three")]);
}

#[test]
fn null_cells_are_rejected_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a");
    let texts = |texts: [Option<&str>; 3]| -> ArrayRef { Arc::new(StringArray::from(texts.to_vec())) };
    let columns = vec![
        ("source", texts([Some("a"), None, Some("c")])),
        ("target", texts([None, Some("b"), Some("d")])),
    ];
    parquet(&file, columns);
    let read = read_corpus(&file, Task::Pairs, &ColumnNames::default()).unwrap();
    assert_eq!(seen(&read), [(2, 3, "c", "d")]);
    let reasons: Vec<&str> = read.rejects.iter().map(|reject| reject.reason.as_str()).collect();
    let found = |side: &str| format!("expected a text on both sides, found null as the {side}");
    assert_eq!(reasons, [found("target"), found("source")]);
}

#[test]
fn tabs_alone_are_a_row_with_empty_sides() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(&dir, "blank.tsv", b"A dog.\tEin Hund.\n\t\nA cat.\tEine Katze.\n   \n\t \n");
    let read = read_corpus(&file, Task::Pairs, &ColumnNames::default()).unwrap();
    assert_eq!(read.rows.iter().map(|row| row.row).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(
        read.rejects.iter().map(|reject| (reject.row, reject.line)).collect::<Vec<_>>(),
        [(1, 2), (3, 5)]
    );
}
