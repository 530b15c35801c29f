//! Corpora in lines: a text a line, tab-separated columns, JSON objects.

use std::path::Path;

use attnscope_run::data::{LineError, Lines, json_keys, json_object, short_json};
use serde_json::{Map, Value};

use super::{Collector, ColumnNames, CorpusRead};
use crate::error::AuditError;
use crate::model::Task;

/// Which columns of tab-separated lines hold what.
struct Table {
    columns: usize,
    source: Option<usize>,
    target: usize,
    kept: Vec<usize>,
}

pub(super) fn read(file: &Path, task: Task, columns: &ColumnNames) -> Result<CorpusRead, AuditError> {
    let mut collector = Collector::new(file, task);
    let mut table = None;
    let mut is_json = None;
    for line in Lines::open(file)? {
        let (number, line) = match line {
            Ok(line) => line,
            Err(LineError::Row(fault)) => {
                collector.reject(
                    as_line(fault.line),
                    format!("expected {}, found {}", fault.expected, fault.found),
                );
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        // Tabs with nothing between them are a row whose sides are empty.
        if line.trim().is_empty() && !line.contains('\t') {
            continue;
        }
        let at = as_line(number);
        if *is_json.get_or_insert_with(|| line.trim_start().starts_with('{')) {
            match json_object(file, number, &line) {
                Ok(object) => add_object(&mut collector, at, &object, columns)?,
                Err(fault) => {
                    collector.reject(at, format!("expected {}, found {}", fault.expected, fault.found))
                }
            }
            continue;
        }
        let Some(table) = &table else {
            let (made, is_header) = Table::of(&collector, &line, columns)?;
            if !is_header {
                made.add(&mut collector, at, &line);
            }
            table = Some(made);
            continue;
        };
        table.add(&mut collector, at, &line);
    }
    collector.finish()
}

fn as_line(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Table {
    /// What the first line says: a header where columns are named, else a row like the others.
    fn of(collector: &Collector<'_>, first: &str, columns: &ColumnNames) -> Result<(Self, bool), AuditError> {
        if !columns.are_named() {
            let table = match collector.task {
                Task::Text => Self { columns: 1, source: None, target: 0, kept: Vec::new() },
                Task::Pairs | Task::Audio => {
                    Self { columns: 2, source: Some(0), target: 1, kept: Vec::new() }
                }
            };
            return Ok((table, false));
        }
        let header: Vec<&str> = first.split('\t').map(str::trim).collect();
        let find = |name: &str| {
            let at = header.iter().position(|column| *column == name);
            at.ok_or_else(|| collector.no_column(name, &header))
        };
        let source = match collector.task {
            Task::Text => None,
            Task::Pairs | Task::Audio => Some(find(columns.source())?),
        };
        let target = find(columns.target(collector.task))?;
        let kept = columns.keep.iter().map(|name| find(name)).collect::<Result<_, _>>()?;
        Ok((Self { columns: header.len(), source, target, kept }, true))
    }

    fn add(&self, collector: &mut Collector<'_>, line: i64, text: &str) {
        let fields: Vec<&str> = match self.columns {
            // A text may have tabs.
            1 => vec![text],
            _ => text.split('\t').collect(),
        };
        if fields.len() != self.columns {
            let found = match fields.len() {
                1 => "one column".to_owned(),
                n => format!("{n} columns"),
            };
            return collector.reject(line, format!("expected {} columns, found {found}", self.columns));
        }
        let kept = self.kept.iter().map(|&column| fields.get(column).map(|&text| text.to_owned())).collect();
        let source = self.source.and_then(|column| fields.get(column).copied());
        collector.add(line, source, fields.get(self.target).copied(), kept);
    }
}

/// The value under a path of keys: `translation.de`, or that name itself.
fn at_path<'o>(object: &'o Map<String, Value>, path: &str) -> Option<&'o Value> {
    if let Some(value) = object.get(path) {
        return Some(value);
    }
    let (first, rest) = path.split_once('.')?;
    at_path(object.get(first)?.as_object()?, rest)
}

/// A row of JSON. The first row decides whether a column is there at all; in a later one a missing key is a bad row.
fn add_object(
    collector: &mut Collector<'_>,
    line: i64,
    object: &Map<String, Value>,
    columns: &ColumnNames,
) -> Result<(), AuditError> {
    let is_first = collector.next == 0;
    let text = |name: &str| match at_path(object, name) {
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other) => Err(Err(format!("expected a text under {name:?}, found {}", short_json(other)))),
        None if is_first => Err(Ok(name.to_owned())),
        None => Err(Err(format!("expected a text under {name:?}, found only {}", json_keys(object)))),
    };
    let source = match collector.task {
        Task::Text => Ok(None),
        Task::Pairs | Task::Audio => text(columns.source()).map(Some),
    };
    let both = source.and_then(|source| Ok((source, text(columns.target(collector.task))?)));
    let kept = columns.keep.iter().map(|name| match at_path(object, name) {
        None if is_first => Err(Ok(name.clone())),
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Ok(Some(other.to_string())),
    });
    let kept: Result<Vec<_>, _> = kept.collect();
    match both.and_then(|(source, target)| Ok((source, target, kept?))) {
        Ok((source, target, kept)) => collector.add(line, source, Some(target), kept),
        Err(Err(reason)) => collector.reject(line, reason),
        Err(Ok(column)) => {
            let names: Vec<&str> = object.keys().map(String::as_str).collect();
            return Err(collector.no_column(&column, &names));
        }
    }
    Ok(())
}
