//! `longhaul top`: a view of a running gateway that is updated once a second.

mod history;
mod screen;

use std::{
    io::{self, IsTerminal as _},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use relay::status::GatewaySnapshot;

use self::{history::History, screen::View};
use crate::{
    admin::{self, AdminPlace},
    exit, places,
};

/// Show the present activity of a running gateway, updated once a second
///
/// The screen shows the peers with their rates over the last minutes, and the running transfers
/// with the limits of their rates. It also shows the most recently completed transfers. Keys: up
/// and down scroll, q quits.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul top
  longhaul top --admin 127.0.0.1:9811

Exit codes: 0 done; 1 no gateway answers; 2 wrong use.")]
pub(crate) struct Args {
    #[command(flatten)]
    gateway: places::Gateway,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    exit::ensure(
        io::stdin().is_terminal() && io::stdout().is_terminal(),
        "top needs a terminal; \"longhaul status\" prints the same once",
    )?;
    let at = &args.gateway.places();
    // The first request is sent before the screen is cleared.
    let first = ask(at)?;
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let shown = show(&mut terminal, at, first);
    ratatui::restore();
    shown
}

#[allow(clippy::disallowed_methods, reason = "shows a gateway as time passes")]
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    at: &[AdminPlace],
    first: GatewaySnapshot,
) -> anyhow::Result<()> {
    let mut history = History::default();
    history.add(&first);
    let mut view = View {
        snapshot: first,
        trouble: None,
        scroll: 0,
    };
    let mut asked = Instant::now();
    loop {
        terminal.draw(|frame| screen::draw(frame, &view, &history))?;
        let left = PERIOD.saturating_sub(asked.elapsed());
        if event::poll(left)? {
            match event::read()? {
                Event::Key(key) if is_end(key) => return Ok(()),
                Event::Key(key) => view.scroll(key.code),
                _ => {}
            }
        }
        if asked.elapsed() >= PERIOD {
            asked = Instant::now();
            match ask(at) {
                Ok(snapshot) => {
                    history.add(&snapshot);
                    view.snapshot = snapshot;
                    view.trouble = None;
                }
                // The gateway may be restarting, so the last snapshot stays.
                Err(error) => view.trouble = Some(format!("{error:#}")),
            }
        }
    }
}

fn ask(places: &[AdminPlace]) -> anyhow::Result<GatewaySnapshot> {
    let (at, answer) = admin::ask_any(places, "/status.json")?;
    serde_json::from_str(&answer.body).with_context(|| {
        format!(
            "the program at {at} is no gateway of this version (restart the gateway, or use the \
         longhaul of its version)"
        )
    })
}

fn is_end(key: KeyEvent) -> bool {
    let is_interrupt =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    let is_quit = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
    key.kind == KeyEventKind::Press && (is_interrupt || is_quit)
}

const PERIOD: Duration = Duration::from_secs(1);
