use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::recipe::{Recipe, shipped};

fn table(name: &str) -> DataTable {
    Recipe::parse(name, shipped(name).unwrap()).unwrap().data
}

fn compressed(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

const ALL: [Split; 3] = [Split::Train, Split::Validation, Split::Test];

fn read(data: &DataSet) -> Vec<RawRow> {
    data.rows(&ALL, Split::Train).unwrap().collect()
}

fn fine(data: &DataSet) -> Vec<(Split, Example)> {
    read(data).into_iter().map(Result::unwrap).collect()
}

fn labelled(text: &str, class: u32) -> Example {
    Example::Labelled { text: text.into(), class }
}

fn paired(source: &str, target: &str) -> Example {
    Example::Pair { source: source.into(), target: target.into() }
}

/// The same rows in every form that they may have.
#[test]
fn one_set_of_reviews_in_four_forms() {
    let dir = tempfile::tempdir().unwrap();
    let json = "{\"split\":\"train\",\"label\":1,\"text\":\"good, really\"}\n\n\
                {\"split\":\"test\",\"label\":\"negative\",\"text\":\"bad\"}\r\n";
    fs::write(dir.path().join("a.jsonl"), format!("\u{feff}{json}")).unwrap();
    fs::write(dir.path().join("b"), compressed(json)).unwrap();
    fs::write(dir.path().join("c.csv"), "label,text,split\n1,\"good, really\",train\nNegative,bad,test\n")
        .unwrap();
    fs::write(dir.path().join("d.tsv"), "text\tlabel\tsplit\ngood, really\tpositive\ttrain\nbad\t0\ttest\n")
        .unwrap();
    for (part, name, text) in [("train/pos", "0_9.txt", "good, really"), ("test/neg", "0_1.txt", "bad")] {
        let folder = dir.path().join("e").join(part);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }
    let expected = [(Split::Train, labelled("good, really", 1)), (Split::Test, labelled("bad", 0))];
    for name in ["a.jsonl", "b", "c.csv", "d.tsv", "e"] {
        let data = DataSet::open(&table("imdb-conv"), Some(&dir.path().join(name))).unwrap();
        assert_eq!(fine(&data), expected, "{name}");
        let train: Vec<_> = data.rows(&[Split::Train], Split::Train).unwrap().collect();
        assert_eq!(train.len(), 1, "{name}");
    }
}

#[test]
fn pairs_in_four_forms() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.tsv"), "a dog\tein Hund\n\na cat\teine Katze\n").unwrap();
    fs::write(dir.path().join("b.csv"), "source,target\na dog,ein Hund\na cat,eine Katze\n").unwrap();
    let json =
        "{\"source\":\"a dog\",\"target\":\"ein Hund\"}\n{\"source\":\"a cat\",\"target\":\"eine Katze\"}";
    fs::write(dir.path().join("c"), json).unwrap();
    let expected =
        [(Split::Train, paired("a dog", "ein Hund")), (Split::Train, paired("a cat", "eine Katze"))];
    for name in ["a.tsv", "b.csv", "c"] {
        let data = DataSet::open(&table("multi30k-en-de"), Some(&dir.path().join(name))).unwrap();
        assert_eq!(fine(&data), expected, "{name}");
    }
    for (name, text) in [("train.en", "a dog\na cat\n"), ("val.en", "a bird\n")] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    fs::write(dir.path().join("train.de.gz"), compressed("ein Hund\neine Katze\n")).unwrap();
    fs::write(dir.path().join("val.de"), "ein Vogel\n").unwrap();
    let data = DataSet::open(&table("multi30k-en-de"), Some(dir.path())).unwrap();
    // The test files are not there, and are not asked for.
    let rows = data.rows(&[Split::Train, Split::Validation], Split::Train).unwrap();
    let rows: Vec<_> = rows.map(Result::unwrap).collect();
    assert_eq!(rows[..2], expected);
    assert_eq!(rows[2], (Split::Validation, paired("a bird", "ein Vogel")));
    let error = data.rows(&ALL, Split::Train).unwrap_err();
    assert!(error.to_string().ends_with("found no test_2016_flickr.en"), "{error}");
}

#[test]
fn the_toy_brings_its_own_pair() {
    let data = DataSet::open(&table("toy"), None).unwrap();
    assert_eq!(fine(&data).len(), 1);
    assert!(matches!(DataSet::open(&table("imdb-conv"), None), Err(DataError::None)));
}

#[test]
fn a_bad_row_is_named_by_file_and_line_and_may_be_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let good = "{\"label\":1,\"text\":\"fine\"}";
    let cases = [
        (
            "{\"label\":2,\"text\":\"x\"}",
            "expected one of negative, positive, or a number from 0 to 1 under \"label\", found 2",
        ),
        ("{\"label\":\"meh\",\"text\":\"x\"}", "found \"meh\""),
        ("{\"label\":-1,\"text\":\"x\"}", "found -1"),
        ("{\"label\":true,\"text\":\"x\"}", "found true"),
        ("{\"text\":\"x\"}", "under \"label\", found only \"text\""),
        ("{\"label\":1,\"text\":7}", "expected a text under \"text\", found 7"),
        ("{\"label\":1,\"text\":\" \"}", "expected a text under \"text\", found an empty one"),
        ("{\"label\":1}", "expected a text under \"text\", found only \"label\""),
        (
            "{\"label\":1,\"text\":\"x\",\"split\":\"later\"}",
            "expected train, validation or test under \"split\", found \"later\"",
        ),
        ("{\"label\":1,", "expected a JSON object, found the line's end in the middle of it"),
        ("[1]", "expected a JSON object, found [1]"),
        (
            "{\"label\":1 \"text\":\"x\"}",
            "expected a JSON object, found \"\\\"text\\\":\\\"x\\\"}\" at column 12, which is not JSON there",
        ),
    ];
    for (bad, what) in cases {
        let file = dir.path().join("rows.jsonl");
        fs::write(&file, format!("{good}\n{bad}\n{good}\n")).unwrap();
        let data = DataSet::open(&table("imdb-conv"), Some(&file)).unwrap();
        let rows = read(&data);
        let Some(Err(error)) = rows.last() else { panic!("{bad}") };
        assert!(error.to_string().starts_with(&format!("{}:2: ", file.display())), "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(error.remedy(), attnscope_checkpoint::Remedy::SkipBadRows);
        assert_eq!(rows.len(), 2, "nothing follows an error");
        let mut skipping = data.skipping_bad(true).rows(&ALL, Split::Train).unwrap();
        assert_eq!(skipping.by_ref().map(Result::unwrap).count(), 2);
        assert_eq!(skipping.bad().count, 1);
        assert!(skipping.bad().first.as_ref().is_some_and(|said| said.contains(":2: ")));
    }
}

#[test]
fn bad_rows_of_other_forms() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [(&str, &[u8], &str); 10] = [
        ("imdb-conv", b"text,label\nfine,1\nx,1,2\n", ":3: expected 2 columns, found 3"),
        ("imdb-conv", b"text,label\nfine,1\n\xff,1\n", ":3: expected UTF-8, found other bytes in column 1"),
        (
            "imdb-conv",
            b"text,class\nfine,1\n",
            ":1: expected a column \"label\", found columns \"text\", \"class\"",
        ),
        ("multi30k-en-de", b"a\tb\nno tab\n", ":2: expected a source, a tab and a target, found no tab"),
        ("multi30k-en-de", b"a\tb\nc\td\te\n", ":2: expected a source, a tab and a target, found 2 tabs"),
        ("multi30k-en-de", b"a\tb\nc\t \n", ":2: expected a text on both sides, found an empty target"),
        ("multi30k-en-de", b"a\tb\n\t\n", ":2: expected a text on both sides, found an empty source"),
        (
            "imdb-conv",
            b"text,label\nfine,1\n\"open,0\nmore,1\n",
            ":3: expected the quote that opens a field here to be closed at the field's end, found the end of the file",
        ),
        (
            "imdb-conv",
            b"text,label\n\"open,0\n\"more\",1\n",
            "found more of the field behind the next quote, in line 3",
        ),
        ("multi30k-en-de", b"a\tb\n\xff\tx\n", ":2: expected UTF-8, found other bytes at byte 1"),
    ];
    for (recipe, bytes, what) in cases {
        let file = dir.path().join("rows");
        fs::write(&file, bytes).unwrap();
        let data = DataSet::open(&table(recipe), Some(&file)).unwrap();
        let error = match data.rows(&ALL, Split::Train) {
            Err(error) => error,
            Ok(rows) => rows.filter_map(Result::err).next().unwrap(),
        };
        assert!(error.to_string().contains(what), "{error}");
    }
}

/// Lines that have slipped are no bad row: nothing after them belongs together.
#[test]
fn files_of_unequal_length_are_refused_though_bad_rows_are_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("train.en", "a\nb\nc\n"), ("train.de", "x\ny\n"), ("val.en", ""), ("val.de", "")] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let data = DataSet::open(&table("multi30k-en-de"), Some(dir.path())).unwrap().skipping_bad(true);
    let rows: Vec<_> = data.rows(&[Split::Train], Split::Train).unwrap().collect();
    let Some(Err(error)) = rows.last() else { panic!("no error") };
    assert!(
        error.to_string().contains("train.de: expected as many lines as in the file beside it"),
        "{error}"
    );
}

/// Each of these has a remedy of its own.
#[test]
fn files_that_cannot_be_read_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let written = |name: &str, bytes: &[u8]| {
        let file = dir.path().join(name);
        fs::write(&file, bytes).unwrap();
        file
    };
    let conv = table("imdb-conv");
    let empty = DataSet::open(&conv, Some(&written("empty.jsonl", b"\n \n"))).unwrap_err();
    assert!(matches!(empty, DataError::EmptyFile { .. }), "{empty}");
    let whole = compressed(&"{\"text\":\"a b c d\",\"label\":0}\n".repeat(5000));
    let cut = written("cut.jsonl.gz", &whole[..whole.len() / 2]);
    let found = DataSet::open(&conv, Some(&cut))
        .and_then(|data| data.rows(&ALL, Split::Train)?.collect::<Result<Vec<_>, _>>());
    let found = found.unwrap_err();
    assert!(matches!(found, DataError::Lines(attnscope_run::data::LineError::Cut { .. })), "{found}");
    assert!(found.remedy().to_string().contains("again"), "{}", found.remedy());
    let folder =
        DataSet::open(&conv, Some(dir.path())).and_then(|data| data.rows(&ALL, Split::Train)).unwrap_err();
    assert!(folder.to_string().ends_with("found cut.jsonl.gz, empty.jsonl"), "{folder}");
}
