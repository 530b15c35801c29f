//! What a text points to for more, in the words of whoever reads it: a user of the command line, or of Python.

/// Who reads a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reader {
    /// It is printed by a command.
    #[default]
    CommandLine,
    /// It is shown by an object of Python.
    Python,
}

/// What there is more of, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hint<'a> {
    /// All nodes of a comparison.
    AllNodes,
    /// Names that belong together.
    NameMap,
    /// The right ones of proposed lines.
    ProposedLines,
    /// The model of a comparison.
    Model,
    /// All cells of a mask or a matrix.
    AllCells,
    /// One row of a batch.
    Row,
    /// Checksums that were not computed.
    Statistics,
    /// What a rule is about.
    Rule(&'a str),
    /// The doctor of a model.
    Doctor(&'a str),
}

impl Hint<'_> {
    /// What to give, or where to look.
    pub(crate) fn words(self, reader: Reader) -> String {
        use Reader::{CommandLine, Python};
        let fixed = match (self, reader) {
            (Self::AllNodes, CommandLine) => "--full",
            (Self::AllNodes, Python) => "to_dict()[\"nodes\"]",
            (Self::NameMap, CommandLine) => "--map FILE",
            (Self::NameMap, Python) => "names={...}",
            (Self::ProposedLines, CommandLine) => {
                "put the right lines into a file, and give it with --map FILE"
            }
            (Self::ProposedLines, Python) => "pass the right ones as names={...}",
            (Self::Model, CommandLine) => "--model FILE",
            (Self::Model, Python) => "model=",
            (Self::AllCells, CommandLine) => "--format json",
            (Self::AllCells, Python) => "to_dict()",
            (Self::Row, CommandLine) => "--row N",
            (Self::Row, Python) => "row=N",
            (Self::Statistics, CommandLine) => "--stats",
            (Self::Statistics, Python) => "stats=True",
            (Self::Rule(rule), CommandLine) => return format!("attnscope explain {rule}"),
            (Self::Rule(rule), Python) => return format!("model.explain({rule:?})"),
            (Self::Doctor(model), CommandLine) => return format!("`attnscope doctor {model}`"),
            (Self::Doctor(_), Python) => "model.doctor()",
        };
        fixed.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{Hint, Reader};

    #[test]
    fn python_is_told_of_no_flag() {
        use Hint::{AllCells, AllNodes, Doctor, Model, NameMap, ProposedLines, Row, Rule, Statistics};
        let all = [
            AllNodes,
            NameMap,
            ProposedLines,
            Model,
            AllCells,
            Row,
            Statistics,
            Rule("dead-head"),
            Doctor("m.pt"),
        ];
        for hint in all {
            let words = hint.words(Reader::Python);
            assert!(!words.contains("--") && !words.contains("attnscope "), "{words}");
            assert_ne!(words, hint.words(Reader::CommandLine));
        }
    }
}
