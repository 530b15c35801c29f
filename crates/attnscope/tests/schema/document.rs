//! JSON Schemas as text: a table of keys for every object, with the doc comments of the structs.

use std::fmt::Write as _;

use schemars::Schema;
use serde_json::Value;

const BEGIN: &str = "<!-- From here on generated";
const END: &str = "<!-- To here. -->";

/// A document with the text of all schemas between its two marks.
pub(crate) fn inserted(document: &str, schemas: &[(&'static str, Schema)]) -> String {
    let begin = document.find(BEGIN).and_then(|at| Some(at + document[at..].find('\n')? + 1)).unwrap();
    let end = document.find(END).unwrap();
    let sections = schemas.iter().map(|(name, schema)| section(name, schema.as_value()));
    format!("{}\n{}{}", &document[..begin], sections.collect::<String>(), &document[end..])
}

/// The keys of a schema that no doc comment tells of.
pub(crate) fn undescribed(schema: &Value) -> Vec<String> {
    let definitions = schema["$defs"].as_object().into_iter().flatten();
    let root = ("the answer".to_owned(), schema);
    let all = std::iter::once(root).chain(definitions.map(|(name, value)| (name.clone(), value)));
    let keys = |(name, value): (String, &Value)| {
        let mut missing = Vec::new();
        for object in variants(value) {
            for (key, property) in object["properties"].as_object().into_iter().flatten() {
                let is_tag = property.get("const").is_some()
                    || property["type"] == "array" && property.get("prefixItems").is_some();
                if property.get("description").is_none() && !is_tag {
                    missing.push(format!("{name}.{key}"));
                }
            }
        }
        missing
    };
    all.flat_map(keys).collect()
}

/// An object, or the objects that it may be.
fn variants(value: &Value) -> Vec<&Value> {
    let alternatives = value["oneOf"].as_array().or(value["anyOf"].as_array());
    std::iter::once(value).chain(alternatives.into_iter().flatten()).collect()
}

fn section(name: &str, schema: &Value) -> String {
    let title = match name {
        "check-trace" => "`check --trace DIR --format json`".to_owned(),
        "trace-file" => "`trace --save DIR`: `trace.json`".to_owned(),
        "run" => "`serve`: the last line of a run".to_owned(),
        name => format!("`{name} --format json`"),
    };
    let mut out = format!("## {title}\n\n");
    out += &object(schema, schema, None);
    for definition in referred(schema) {
        out += &object(schema, &schema["$defs"][&definition], Some(&definition));
    }
    out
}

/// The definitions that a schema refers to, in the order in which a reader meets them.
fn referred(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut root = schema.clone();
    if let Some(root) = root.as_object_mut() {
        root.remove("$defs");
    }
    refer(&root, schema, &mut found);
    found
}

fn refer(value: &Value, schema: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match (key.as_str(), value.as_str()) {
                    ("$ref", Some(path)) => {
                        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
                        if !found.contains(&name) {
                            found.push(name.clone());
                            refer(&schema["$defs"][&name], schema, found);
                        }
                    }
                    _ => refer(value, schema, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| refer(value, schema, found)),
        _ => {}
    }
}

/// What an object or a choice is: a sentence, then its keys or values.
fn object(root: &Value, value: &Value, name: Option<&str>) -> String {
    let mut out = String::new();
    let words = description(value);
    match name {
        Some(name) => writeln!(out, "**{}**: {words}\n", shown(name)).unwrap(),
        None => writeln!(out, "{words}\n").unwrap(),
    }
    out += &keys(root, value);
    let alternatives = value["oneOf"].as_array().or(value["anyOf"].as_array());
    let Some(alternatives) = alternatives else { return out };
    let constants: Vec<String> = alternatives.iter().filter_map(constant).collect();
    if constants.len() == alternatives.len() {
        out += &(constants.concat() + "\n");
        return out;
    }
    for (i, alternative) in alternatives.iter().enumerate() {
        let or = if i == 0 { "Either" } else { "Or" };
        match alternative["$ref"].as_str() {
            Some(_) => {
                writeln!(out, "{or} {}: {}\n", kind(root, alternative), description(alternative)).unwrap()
            }
            None if alternative.get("const").is_some() => {
                out += &(constant(alternative).unwrap_or_default() + "\n")
            }
            None => {
                writeln!(out, "{or}, {}\n", lower(&description(alternative))).unwrap();
                out += &keys(root, alternative);
            }
        }
    }
    out
}

/// A value of a choice that is a word.
fn constant(value: &Value) -> Option<String> {
    let word = value["const"].as_str()?;
    Some(format!("- `{word}`: {}\n", description(value)))
}

fn keys(root: &Value, value: &Value) -> String {
    let Some(properties) = value["properties"].as_object().filter(|keys| !keys.is_empty()) else {
        return String::new();
    };
    let mut out = "| key | type | holds |\n|---|---|---|\n".to_owned();
    let required: Vec<&str> =
        value["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (key, property) in properties {
        let optional = if required.contains(&key.as_str()) { "" } else { ", optional" };
        writeln!(out, "| `{key}` | {}{optional} | {} |", kind(root, property), description(property))
            .unwrap();
    }
    out + "\n"
}

/// The type of a key in words.
fn kind(root: &Value, value: &Value) -> String {
    if let Some(path) = value["$ref"].as_str() {
        return shown(path.rsplit('/').next().unwrap_or(path));
    }
    if let Some(word) = value["const"].as_str() {
        return format!("`{word}`");
    }
    if let Some(alternatives) = value["anyOf"].as_array() {
        return alternatives.iter().map(|one| kind(root, one)).collect::<Vec<_>>().join(" or ");
    }
    let one = |kind_name: &str| match kind_name {
        "array" => list(root, value),
        "integer" => "integer".to_owned(),
        other => other.to_owned(),
    };
    match &value["type"] {
        Value::String(name) => one(name),
        Value::Array(names) => {
            names.iter().filter_map(Value::as_str).map(one).collect::<Vec<_>>().join(" or ")
        }
        _ => "any".to_owned(),
    }
}

fn list(root: &Value, value: &Value) -> String {
    match (&value["items"], value["prefixItems"].as_array()) {
        (items, _) if items.is_object() => format!("list of {}", kind(root, items)),
        (_, Some(items)) => {
            format!("[{}]", items.iter().map(|item| kind(root, item)).collect::<Vec<_>>().join(", "))
        }
        _ => "list".to_owned(),
    }
}

/// A definition's name without what tells it from the value that it is made of.
fn shown(name: &str) -> String {
    name.trim_end_matches("Document").to_owned()
}

/// A doc comment in one line, as a cell of a table holds it.
fn description(value: &Value) -> String {
    let text = value["description"].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

#[test]
fn a_schema_reads_as_tables() {
    let schema = serde_json::json!({
        "description": "An answer.",
        "properties": { "n": { "type": ["integer", "null"], "description": "How many." }, "of": { "$ref": "#/$defs/PartDocument" } },
        "required": ["n"],
        "$defs": { "PartDocument": { "description": "A part.", "oneOf": [{ "const": "a", "description": "The first." }] } },
    });
    let text = section("some", &schema);
    assert!(text.contains("| `n` | integer or null | How many. |"), "{text}");
    assert!(
        text.contains("| `of` | Part, optional |")
            && text.contains("**Part**: A part.\n\n- `a`: The first.\n"),
        "{text}"
    );
    assert_eq!(undescribed(&schema), ["the answer.of"]);
}
