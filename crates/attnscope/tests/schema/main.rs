//! `schema/` holds the JSON Schema of every answer, and docs/json.md is the same for readers. To regenerate both after a
//! change: `ATTNSCOPE_UPDATE_SCHEMA=1 cargo test -p attnscope --test schema`.

#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

mod document;

use std::path::Path;

use attnscope::answer::schemas;

#[test]
fn the_schemas_are_those_of_the_answers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema");
    let update = std::env::var_os("ATTNSCOPE_UPDATE_SCHEMA").is_some();
    let mut expected = Vec::new();
    for (name, schema) in schemas() {
        let file = folder.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if update {
            std::fs::write(&file, &text).unwrap();
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            written == text,
            "{} is not what the code has; the head of this file says how to write it",
            file.display()
        );
        expected.push(format!("{name}.json"));
    }
    let mut found: Vec<String> =
        std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn the_documentation_is_that_of_the_answers() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let written = std::fs::read_to_string(&file).unwrap();
    let expected = document::inserted(&written, &schemas());
    if std::env::var_os("ATTNSCOPE_UPDATE_SCHEMA").is_some() {
        std::fs::write(&file, &expected).unwrap();
    } else {
        assert!(written == expected, "docs/json.md is stale; the head of this file says how to write it");
    }
}

#[test]
fn every_key_is_described() {
    for (name, schema) in schemas() {
        let missing = document::undescribed(schema.as_value());
        assert!(missing.is_empty(), "{name}: no doc comment: {missing:?}");
    }
}
