//! `snapctl top`: the tables of `snapctl stat`, live.

mod screen;

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::context::Context;
use crate::failure::Failure;
use crate::stat::{self, Choice, Snapshots};
use screen::{Screen, Sort};

const HELP: &str = "\
Keys: r reads, b bytes read, w writes, l latency (p99 of reads), e errors, n names: sort by it, again to turn the order; q ends it.
A terminal of less than some 160 columns has the columns that matter most: reads, writes, their bytes and p99, and errors.
Where standard output is no terminal, it prints the tables of `snapctl stat` again and again.

Example:
  snapctl top --interval 2";

/// `snapctl top`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Top {
    /// What is looked at.
    #[command(flatten)]
    pub choice: Choice,
}

/// Keys that wait to be looked at.
const KEYS_MAX: usize = 64;
/// How often the reader of keys looks whether anybody still wants them.
const KEY_PATIENCE: Duration = Duration::from_millis(250);

/// Runs it.
pub async fn run(arguments: Top, context: &Context) -> Result<(), Failure> {
    if context.json() || !std::io::stdout().is_terminal() {
        return stat::repeat(&arguments.choice, u64::MAX, stat::tables, context).await;
    }
    let daemon = context.daemon().await?;
    let snapshots = arguments.choice.watch(&daemon).await?;
    // Before the terminal is ours: whatever ends us, it is given back.
    let ending = Ending::listen()?;
    // From here on it is; a panic gives it back too.
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::here(format!("the terminal: {error}")))?;
    let ended = show(&mut terminal, snapshots, ending).await;
    ratatui::restore();
    ended
}

/// The signals that ask for the end from outside; at the terminal an interrupt is a key.
struct Ending([Signal; 3]);

impl Ending {
    fn listen() -> Result<Ending, Failure> {
        let of = |kind| {
            signal(kind).map_err(|error| Failure::here(format!("listening to signals: {error}")))
        };
        Ok(Ending([
            of(SignalKind::terminate())?,
            of(SignalKind::interrupt())?,
            of(SignalKind::hangup())?,
        ]))
    }

    async fn asked(&mut self) {
        let Ending([terminate, interrupt, hangup]) = self;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

async fn show(
    terminal: &mut ratatui::DefaultTerminal,
    mut snapshots: Snapshots,
    mut ending: Ending,
) -> Result<(), Failure> {
    let broken = |error: std::io::Error| Failure::here(format!("the terminal: {error}"));
    let mut events = terminal_events();
    let colour = std::env::var_os("NO_COLOR").is_none();
    let mut screen = Screen::new(colour);
    loop {
        terminal.draw(|frame| screen.draw(frame)).map_err(broken)?;
        tokio::select! {
            rates = snapshots.next() => screen.update(rates?),
            event = events.recv() => match event {
                Some(Event::Key(key)) if ends(key) => return Ok(()),
                Some(Event::Key(key)) => press(&mut screen, key),
                // Another size: drawn anew.
                Some(_) => {}
                None => return Ok(()),
            },
            () = ending.asked() => return Ok(()),
        }
    }
}

/// The terminal's events, read by a thread of its own: reading blocks.
fn terminal_events() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(KEYS_MAX);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let event = match event::poll(KEY_PATIENCE) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            // Without a terminal there is nobody to show anything to: the closed channel says so.
            let Ok(event) = event else { return };
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

/// In raw mode an interrupt is a key as any other.
fn ends(key: KeyEvent) -> bool {
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

fn press(screen: &mut Screen, key: KeyEvent) {
    if key.kind == KeyEventKind::Release {
        return;
    }
    let KeyCode::Char(letter) = key.code else {
        return;
    };
    if let Some(sort) = Sort::of_key(letter) {
        screen.sort_by(sort);
    }
}
