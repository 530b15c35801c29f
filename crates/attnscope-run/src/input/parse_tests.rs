use std::path::Path;

use attnscope_graph::Side;

use super::*;

#[test]
fn ids_come_in_rows() {
    let cases: &[(&str, &[&[u32]])] = &[
        ("3,2,0;1,5", &[&[3, 2, 0], &[1, 5]]),
        (" 3 , 2,0 ; 1,5 ; ", &[&[3, 2, 0], &[1, 5]]),
        ("3 2 0", &[&[3, 2, 0]]),
        ("7,", &[&[7]]),
        ("4294967295", &[&[u32::MAX]]),
    ];
    for (text, rows) in cases {
        assert_eq!(parse_ids(text).unwrap(), *rows, "{text:?}");
    }
}

#[test]
fn what_is_no_id_is_named_with_its_row() {
    let cases = [
        ("3,x", "row 0: expected a token id, found \"x\""),
        ("3;1,-5", "row 1: expected a token id, found \"-5\""),
        ("1;+2", "row 1: expected a token id, found \"+2\""),
        ("1;2.0", "row 1: expected a token id, found \"2.0\""),
        ("4294967296", "row 0: expected a token id, found \"4294967296\""),
        ("1,,2", "row 0: expected a token id, found \"\""),
        ("", "row 0: expected token ids, found none"),
        ("1;;2", "row 1: expected token ids, found none"),
        (",", "row 0: expected a token id, found \"\""),
    ];
    for (text, message) in cases {
        let error = parse_ids(text).unwrap_err();
        assert_eq!(error.to_string(), message, "{text:?}");
        assert!(!error.remedy().to_string().is_empty());
    }
}

fn pairs(bytes: &[u8]) -> Result<Vec<(usize, String, String)>, String> {
    let parsed = parse_pairs(Path::new("pairs.tsv"), bytes).map_err(|e| e.to_string())?;
    Ok(parsed.into_iter().map(|p| (p.line, p.source, p.target)).collect())
}

#[test]
fn pairs_keep_their_line_numbers() {
    let text = "\u{feff}a man\tein Mann\r\n\r\n\tnur Ziel\nonly source\t\n  \n";
    let pair = |line, a: &str, b: &str| (line, a.to_owned(), b.to_owned());
    let expected = [pair(1, "a man", "ein Mann"), pair(3, "", "nur Ziel"), pair(4, "only source", "")];
    assert_eq!(pairs(text.as_bytes()).unwrap(), expected);
}

#[test]
fn lines_that_are_no_pairs_are_named() {
    let cases: &[(&[u8], &str)] = &[
        (b"a\tb\nc\n", "pairs.tsv: line 2: expected a source, a tab and a target, found no tab"),
        (b"a\tb\tc", "pairs.tsv: line 1: expected one tab, found 2"),
        (b"a\tb\nx\xff\ty", "pairs.tsv: line 2: expected UTF-8, found other bytes at byte 2"),
        (b"\n\n", "pairs.tsv: line 1: expected a pair, found nothing but empty lines"),
    ];
    for (bytes, message) in cases {
        assert_eq!(pairs(bytes).unwrap_err(), *message);
    }
    let missing = read_pairs(Path::new("no/such.tsv")).unwrap_err();
    assert!(missing.to_string().starts_with("no/such.tsv: "), "{missing}");
}

#[test]
fn limits_name_the_row_and_both_numbers() {
    let room = SideLimits { vocabulary: Some(10), positions: Some(3) };
    let check = |rows: &[Vec<u32>]| room.check(Side::Source, rows).map_err(|e| e.to_string());
    assert_eq!(check(&[vec![0, 9, 1], vec![]]), Ok(()));
    let outside = "row 1 of the source: id 10 is outside the vocabulary of 10 (0 to 9)";
    assert_eq!(check(&[vec![1], vec![2, 10]]).unwrap_err(), outside);
    let long = "row 0 of the source: 4 tokens, and the model's position table has 3 positions";
    assert_eq!(check(&[vec![1; 4]]).unwrap_err(), long);
    let nothing =
        SideLimits { vocabulary: Some(0), positions: None }.check(Side::Target, &[vec![0]]).unwrap_err();
    assert_eq!(nothing.to_string(), "row 0 of the target: id 0 is outside the vocabulary of 0 (0 to 0)");
    let none = SideLimits { vocabulary: None, positions: None };
    assert!(none.check(Side::Target, &[vec![u32::MAX; 5000]]).is_ok());
}
