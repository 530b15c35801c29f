//! `schema/` holds the JSON Schema of every answer. To write it anew after a change:
//! `ATTNSCOPE_UPDATE_SCHEMA=1 cargo test -p attnscope --test schema`.

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
