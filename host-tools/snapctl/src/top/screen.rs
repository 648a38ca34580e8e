//! What `top` shows: a pure function of the last rates and the keys that were pressed.

use std::cmp::Ordering;

use ratatui::Frame;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::rates::{HostRates, Rates};
use crate::stat::{hosts_table, namespaces_table, narrow_hosts_table, reactors_table};

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Reads,
    ReadBytes,
    Writes,
    Latency,
    Errors,
    Name,
}

impl Sort {
    /// The order that a key stands for.
    pub fn of_key(key: char) -> Option<Sort> {
        Some(match key {
            'r' => Sort::Reads,
            'b' => Sort::ReadBytes,
            'w' => Sort::Writes,
            'l' => Sort::Latency,
            'e' => Sort::Errors,
            'n' => Sort::Name,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Sort::Reads => "reads",
            Sort::ReadBytes => "bytes read",
            Sort::Writes => "writes",
            Sort::Latency => "latency",
            Sort::Errors => "errors",
            Sort::Name => "names",
        }
    }

    /// Numbers: the largest first. Names: as the alphabet has them.
    fn compare(self, a: &HostRates, b: &HostRates) -> Ordering {
        let by = |rate: fn(&HostRates) -> f64| rate(b).total_cmp(&rate(a));
        match self {
            Sort::Reads => by(|row| row.reads_per_second),
            Sort::ReadBytes => by(|row| row.read_bytes_per_second),
            Sort::Writes => by(|row| row.writes_per_second),
            Sort::Latency => b.read_p99_ns.cmp(&a.read_p99_ns),
            Sort::Errors => by(|row| row.errors_per_second),
            Sort::Name => a.place().cmp(&b.place()),
        }
    }
}

/// The screen.
#[derive(Debug)]
pub struct Screen {
    rates: Option<Rates>,
    sort: Sort,
    turned: bool,
    colour: bool,
}

impl Screen {
    /// Nothing is known yet.
    pub fn new(colour: bool) -> Screen {
        Screen {
            rates: None,
            sort: Sort::Reads,
            turned: false,
            colour,
        }
    }

    /// Shows these from now on.
    pub fn update(&mut self, rates: Rates) {
        self.rates = Some(rates);
        self.arrange();
    }

    /// Sorts by this from now on; the other way round where it was sorted by this already.
    pub fn sort_by(&mut self, sort: Sort) {
        self.turned = sort == self.sort && !self.turned;
        self.sort = sort;
        self.arrange();
    }

    fn arrange(&mut self) {
        let Some(rates) = &mut self.rates else { return };
        let (sort, turned) = (self.sort, self.turned);
        // Equal rows keep their order by name, whichever way: they would jump about otherwise.
        rates.hosts.sort_by(|a, b| Sort::Name.compare(a, b));
        rates.hosts.sort_by(|a, b| {
            let order = sort.compare(a, b);
            if turned { order.reverse() } else { order }
        });
    }

    /// Draws it: names are shortened, so that rates are seen beside them; where that does not make room for all, hosts have the columns that matter most, and what
    /// does not fit even so is cut off.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let lines = self.lines(usize::from(area.width));
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn lines(&self, width: usize) -> Vec<Line<'static>> {
        let Some(rates) = &self.rates else {
            return vec![Line::raw("waiting for the first interval to pass; q ends")];
        };
        let turned = if self.turned { ", turned" } else { "" };
        let head = format!(
            "snapctl top  {}  sorted by {}{turned}",
            rates.taken_at,
            self.sort.name()
        );
        let mut lines = vec![Line::raw(head), Line::raw(KEYS)];
        let failing: Vec<bool> = rates
            .hosts
            .iter()
            .map(|row| row.errors_per_second > 0.0)
            .collect();
        let fitted = |table| fitted(rates, width, table);
        let mut hosts = fitted(hosts_table);
        if widest(&hosts) > width {
            hosts = fitted(narrow_hosts_table);
        }
        self.add_table(&mut lines, &hosts, &failing);
        self.add_table(&mut lines, &fitted(namespaces_table), &[]);
        self.add_table(&mut lines, &reactors_table(rates), &[]);
        lines
    }

    /// Adds a table with its heading marked, and its rows where they are `bad`.
    fn add_table(&self, lines: &mut Vec<Line<'static>>, table: &str, bad: &[bool]) {
        for (at, text) in table.lines().enumerate() {
            let style = match at.checked_sub(1) {
                None => Style::new().add_modifier(Modifier::BOLD),
                Some(row) if self.colour && bad.get(row) == Some(&true) => {
                    Style::new().fg(Color::Red)
                }
                Some(_) => Style::new(),
            };
            lines.push(Line::styled(text.to_owned(), style));
        }
        lines.push(Line::raw(""));
    }
}

/// The keys, within the width of any terminal.
const KEYS: &str = "keys: r reads  b bytes read  w writes  l latency  e errors  n names  q end";
/// What is left of a name at least: the end, which tells hosts of one kind apart.
const NAME_WIDTH_MIN: usize = 10;

/// Characters of the longest line.
fn widest(table: &str) -> usize {
    let widths = table.lines().map(|line| line.chars().count());
    widths.max().unwrap_or(0)
}

/// A table that is at most so wide, as far as shorter names make it so: those of hosts first.
fn fitted(rates: &Rates, width: usize, table: fn(&Rates) -> String) -> String {
    let too_wide = |rates: &Rates| widest(&table(rates)).saturating_sub(width);
    let mut rates = rates.clone();
    for names in [host_names, subsystem_names] {
        let over = too_wide(&rates);
        let longest = names(&mut rates).map(|name| name.chars().count()).max();
        let left = longest.unwrap_or(0).saturating_sub(over);
        if over > 0 {
            names(&mut rates).for_each(|name| shorten(name, left.max(NAME_WIDTH_MIN)));
        }
    }
    table(&rates)
}

type Names<'r> = Box<dyn Iterator<Item = &'r mut String> + 'r>;

fn host_names(rates: &mut Rates) -> Names<'_> {
    Box::new(rates.hosts.iter_mut().map(|row| &mut row.host_nqn))
}

fn subsystem_names(rates: &mut Rates) -> Names<'_> {
    let of_hosts = rates.hosts.iter_mut().map(|row| &mut row.subsystem_nqn);
    let of_namespaces = rates.namespaces.iter_mut();
    Box::new(of_hosts.chain(of_namespaces.map(|row| &mut row.subsystem_nqn)))
}

/// Leaves the end of a name.
fn shorten(name: &mut String, width: usize) {
    let length = name.chars().count();
    if length > width {
        let end: String = name.chars().skip(length + 1 - width).collect();
        *name = format!("…{end}");
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::text::Span;

    use super::*;

    fn host(name: &str, reads: f64, errors: f64) -> HostRates {
        HostRates {
            subsystem_nqn: "nqn.s".to_owned(),
            namespace_uuid: "5f1a0d8e-93c4-8a51-9d2b-66c1b7a2e3f4".to_owned(),
            nsid: 1,
            host_nqn: name.to_owned(),
            others: false,
            reads_per_second: reads,
            read_bytes_per_second: reads * 4096.0,
            read_p50_ns: Some(90_000),
            read_p99_ns: Some(1_500_000),
            writes_per_second: 0.0,
            written_bytes_per_second: 0.0,
            write_p50_ns: None,
            write_p99_ns: None,
            other_commands_per_second: 0.0,
            errors_per_second: errors,
            abandoned_per_second: 0.0,
            in_flight: 4,
        }
    }

    fn screen(colour: bool) -> Screen {
        let mut screen = Screen::new(colour);
        screen.update(Rates {
            taken_at: "2026-11-21T10:00:00Z".to_owned(),
            seconds: 1.0,
            hosts: vec![
                host("b", 20.0, 0.0),
                host("a", 20.0, 0.0),
                host("c", 900.0, 3.0),
            ],
            namespaces: Vec::new(),
            reactors: Vec::new(),
        });
        screen
    }

    fn drawn(screen: &Screen) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(70, 6)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal
    }

    fn hosts(screen: &Screen) -> Vec<String> {
        let rates = screen.rates.as_ref().unwrap();
        rates.hosts.iter().map(|row| row.host_nqn.clone()).collect()
    }

    #[test]
    fn the_screen_shows_rows_in_order_and_cuts_off_what_does_not_fit() {
        drawn(&screen(false)).backend().assert_buffer_lines([
            Line::raw("snapctl top  2026-11-21T10:00:00Z  sorted by reads                    "),
            Line::raw("keys: r reads  b bytes read  w writes  l latency  e errors  n names  q"),
            Line::from(vec![
                Span::styled(
                    "host  nsid  r/s    read/s      p99  w/s  written/s  p99  err/s",
                    Style::new().add_modifier(Modifier::BOLD),
                ),
                Span::raw("        "),
            ]),
            Line::raw("c        1  900  3.52 MiB  1.50 ms    0        0 B    -    3.0        "),
            Line::raw("a        1   20  80.0 KiB  1.50 ms    0        0 B    -      0        "),
            Line::raw("b        1   20  80.0 KiB  1.50 ms    0        0 B    -      0        "),
        ]);
    }

    /// A screen of one host with such a name, so wide: its lines.
    fn lines_of_one(width: u16) -> Vec<String> {
        let mut screen = screen(false);
        let rates = screen.rates.as_mut().unwrap();
        rates.hosts.truncate(1);
        let row = &mut rates.hosts[0];
        let name = "nqn.2014-08.org.nvmexpress:uuid:3f9906d6-7ab1-4f8b-b049-ab2aa5efc2e0";
        name.clone_into(&mut row.host_nqn);
        "nqn.2026-11.org.example:training".clone_into(&mut row.subsystem_nqn);
        row.reads_per_second = 123_456.0;
        row.writes_per_second = 123_456.0;
        row.written_bytes_per_second = 999.0 * 1024.0 * 1024.0;
        row.write_p99_ns = Some(25_500_000);
        let mut terminal = Terminal::new(TestBackend::new(width, 4)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content.chunks(usize::from(width));
        lines
            .map(|cells| cells.iter().map(ratatui::buffer::Cell::symbol).collect())
            .collect()
    }

    #[test]
    fn at_80_columns_what_matters_most_and_the_keys_are_seen() {
        let lines = lines_of_one(80);
        assert_eq!(
            lines[1].trim_end(),
            "keys: r reads  b bytes read  w writes  l latency  e errors  n names  q end"
        );
        assert_eq!(
            lines[2..],
            [
                "host        nsid      r/s    read/s      p99      w/s  written/s      p99  err/s",
                "…aa5efc2e0     1  123,456  3.52 MiB  1.50 ms  123,456    999 MiB  25.5 ms    3.0",
            ]
        );
    }

    #[test]
    fn a_wide_terminal_has_all_columns_beside_names_as_linux_makes_them() {
        let lines = lines_of_one(170);
        let begins = "subsystem                         nsid  disk      host ";
        assert!(lines[2].starts_with(begins), "{}", lines[2]);
        assert!(lines[2].trim_end().ends_with("in flight"), "{}", lines[2]);
        assert!(lines[3].contains("efc2e0  123,456"), "{}", lines[3]);
    }

    #[test]
    fn rows_with_errors_are_red_only_where_colour_is_wanted() {
        for (colour, expected) in [(true, Color::Red), (false, Color::Reset)] {
            let terminal = drawn(&screen(colour));
            let cell = terminal.backend().buffer().cell((0, 3)).unwrap();
            assert_eq!(cell.fg, expected);
        }
    }

    #[test]
    fn a_key_sorts_and_the_same_key_turns_the_order() {
        let mut screen = screen(false);
        assert_eq!(hosts(&screen), ["c", "a", "b"]);
        screen.sort_by(Sort::Reads);
        assert_eq!(hosts(&screen), ["a", "b", "c"]);
        screen.sort_by(Sort::Errors);
        assert_eq!(hosts(&screen), ["c", "a", "b"]);
        screen.sort_by(Sort::Name);
        assert_eq!(hosts(&screen), ["a", "b", "c"]);
        screen.sort_by(Sort::Name);
        assert_eq!(hosts(&screen), ["c", "b", "a"]);
    }

    #[test]
    fn every_key_of_the_help_is_known_and_no_other() {
        let known: String = ('a'..='z')
            .filter(|key| Sort::of_key(*key).is_some())
            .collect();
        assert_eq!(known, "belnrw");
    }

    #[test]
    fn before_the_first_interval_it_says_so() {
        let mut terminal = Terminal::new(TestBackend::new(46, 1)).unwrap();
        terminal
            .draw(|frame| Screen::new(true).draw(frame))
            .unwrap();
        terminal
            .backend()
            .assert_buffer_lines(["waiting for the first interval to pass; q ends"]);
    }
}
