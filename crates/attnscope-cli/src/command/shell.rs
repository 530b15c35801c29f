//! `completions` and `man`: shell completions and manual pages, generated from the definition of the command line.

use attnscope::Failure;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Output, OutputArgs};

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell for which completions are written
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "attnscope", &mut script);
        Output::new(&OutputArgs::usual())?.write(&String::from_utf8_lossy(&script))
    }
}

#[derive(Debug, Args)]
pub(super) struct Man {
    /// The command whose page is shown [default: the page of the program]
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

impl Man {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut page = Vec::new();
        // The page of a command is called as git calls its own: attnscope-trace.
        let title =
            self.command.as_ref().map_or_else(|| "attnscope".into(), |name| format!("attnscope-{name}"));
        let rendered = clap_mangen::Man::new(self.page()?).title(title).render(&mut page);
        rendered.map_err(|e| Failure::new(format!("the page: {e}"), "please report this"))?;
        Output::new(&OutputArgs::usual())?.write(&String::from_utf8_lossy(&page))
    }

    fn page(&self) -> Result<Command, Failure> {
        let mut whole = Cli::command();
        whole.build();
        let Some(wanted) = &self.command else { return Ok(whole) };
        let found = whole.find_subcommand(wanted).filter(|command| command.get_name() != "help");
        let Some(command) = found else {
            let known: Vec<&str> = whole.get_subcommands().map(Command::get_name).collect();
            return Err(Failure::new(
                format!("man: there is no command {wanted:?}"),
                format!("there are: {}", known.join(", ")),
            ));
        };
        Ok(command.clone())
    }
}
