//! `standfast holds` on a terminal: the pending holds as a list to look through, each in full, and deciding it.
//!
//! What is on the screen and which keys mean what is a value ([`Picker`]) that knows no server: a key gives a [`PickerAction`]. Nothing
//! is approved from the list, and nothing without a second key: the call must have been on the screen. Text of others is made
//! plain before it gets here. The list is asked for again every two seconds.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stdin, stdout};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, TableState};
use ratatui::{DefaultTerminal, Frame};
use standfast_core::time::Timestamp;
use standfast_engine::clock::Clock;

use super::listing::{SUMMED_UP, age, hold, summary};
use super::{Decision, HoldBody, List, decided, json, json_or_text};
use crate::cli::client::{Failure, Server, read};
use crate::cli::edit;
use crate::cli::plain::{Text, block, plain};

/// How long a key is waited for before the time on the screen goes on.
const TICK: Duration = Duration::from_millis(250);

/// After how many ticks without a key the list is asked for again.
const TICKS: u32 = 8;

/// Lines that a page key scrolls by.
const PAGE: i16 = 10;

/// Whether somebody sits at a terminal.
pub(super) fn has_terminal() -> bool {
    let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    stdin().is_terminal() && stdout().is_terminal() && !is_dumb
}

/// Looks through pending holds until the person leaves.
pub(super) fn pick(server: &Server, wanted: &List) -> Result<String, Failure> {
    let mut picker = Picker::new(listed(server, wanted)?);
    picker.sum_up(server);
    let no_screen =
        |error: std::io::Error| Failure::CouldNotAsk(format!("the terminal does not work: {error}"));
    let mut terminal = ratatui::try_init().map_err(no_screen)?;
    let ended = picker.run(&mut terminal, server, wanted);
    ratatui::restore();
    ended.map_err(no_screen)?;
    Ok(String::new())
}

fn listed(server: &Server, wanted: &List) -> Result<Vec<HoldBody>, Failure> {
    let items = server.list("/holds", &wanted.only())?;
    items.iter().map(|item| read(item.get())).collect()
}

/// What is on the screen.
enum Screen {
    /// All pending holds.
    All,
    /// One of them.
    One { hold: Box<HoldBody>, scroll: u16, asks: Asks },
}

/// What the person is asked beside a hold.
enum Asks {
    /// Nothing: they look.
    Nothing,
    /// Whether the call may run as it is.
    Approval,
    /// The reason of a denial, as far as it is written.
    Reason(String),
    /// The answer to a question, as far as it is written.
    Answer(String),
    /// Whether the call may run with these arguments instead.
    Edited { arguments: String, diff: Vec<String> },
}

/// What a key means for others than the screen.
#[derive(Debug, PartialEq, Eq)]
enum PickerAction {
    Nothing,
    Leave,
    Reload,
    Open(String),
    Approve { arguments: Option<String> },
    Deny { reason: String },
    Answer(String),
    Edit,
}

struct Picker {
    holds: Vec<HoldBody>,
    /// What they are about in a line, by their ids, each with the revision that it is of.
    summaries: BTreeMap<String, (u32, String)>,
    /// Which of them is chosen.
    at: usize,
    screen: Screen,
    /// The latest answer of the server, or what went wrong.
    said: String,
    now: Timestamp,
}

impl Picker {
    fn new(holds: Vec<HoldBody>) -> Picker {
        Picker {
            holds,
            summaries: BTreeMap::new(),
            at: 0,
            screen: Screen::All,
            said: String::new(),
            now: Clock::system().now(),
        }
    }

    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        server: &Server,
        wanted: &List,
    ) -> Result<(), std::io::Error> {
        let mut quiet = 0;
        loop {
            self.now = Clock::system().now();
            terminal.draw(|frame| self.draw(frame))?;
            let wish = if event::poll(TICK)? {
                quiet = 0;
                match event::read()? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => self.key(key),
                    _ => PickerAction::Nothing,
                }
            } else {
                quiet += 1;
                if quiet % TICKS == 0 { PickerAction::Reload } else { PickerAction::Nothing }
            };
            match wish {
                PickerAction::Nothing => {}
                PickerAction::Leave => return Ok(()),
                PickerAction::Reload => self.reload(server, wanted),
                PickerAction::Open(id) => match hold(server, &id) {
                    Ok(hold) => self.open(hold),
                    Err(failure) => self.say(&failure),
                },
                PickerAction::Approve { arguments } => self.approve(server, wanted, arguments),
                PickerAction::Deny { reason } => {
                    let reason = Some(reason).filter(|reason| !reason.trim().is_empty());
                    self.decide(
                        server,
                        wanted,
                        &Decision { reason: reason.as_deref(), ..Decision::of("deny") },
                    );
                }
                PickerAction::Answer(answer) => match json_or_text(&answer) {
                    Ok(value) => {
                        let decision = Decision { value: Some(&value), ..Decision::of("answer") };
                        self.decide(server, wanted, &decision);
                    }
                    Err(error) => self.said = plain(&error.to_string()),
                },
                PickerAction::Edit => {
                    ratatui::restore();
                    self.edit();
                    *terminal = ratatui::try_init()?;
                    terminal.clear()?;
                }
            }
        }
    }

    fn reload(&mut self, server: &Server, wanted: &List) {
        match listed(server, wanted) {
            Ok(holds) => {
                // Whoever looks at a line stays on it.
                let here = self.holds.get(self.at).map(|hold| hold.id.clone());
                self.at = holds.iter().position(|hold| Some(&hold.id) == here.as_ref()).unwrap_or(self.at);
                self.at = self.at.min(holds.len().saturating_sub(1));
                self.holds = holds;
                self.sum_up(server);
            }
            Err(failure) => self.say(&failure),
        }
    }

    /// Looks up the arguments of those holds that are new or were edited: the list of the server has none.
    fn sum_up(&mut self, server: &Server) {
        let mut known = std::mem::take(&mut self.summaries);
        for listed in self.holds.iter().take(SUMMED_UP) {
            let (id, revision) = (listed.id.raw(), listed.revision);
            let kept = known.remove(id).filter(|(of, _)| *of == revision);
            // What cannot be looked up any more was decided meanwhile.
            let looked_up = || hold(server, id).ok().map(|whole| (whole.revision, summary(&whole)));
            if let Some(found) = kept.or_else(looked_up) {
                self.summaries.insert(id.to_owned(), found);
            }
        }
    }

    fn open(&mut self, hold: HoldBody) {
        self.said = String::new();
        self.screen = Screen::One { hold: Box::new(hold), scroll: 0, asks: Asks::Nothing };
    }

    fn say(&mut self, failure: &Failure) {
        let (Failure::Refused { said, .. } | Failure::CouldNotAsk(said)) = failure;
        // What came from the server was made plain when it was read.
        self.said = said.lines().next().unwrap_or_default().to_owned();
    }

    /// Approves what is on the screen, bound to it: a call that has changed since is refused.
    fn approve(&mut self, server: &Server, wanted: &List, arguments: Option<String>) {
        let Screen::One { hold, .. } = &self.screen else { return };
        let (digest, revision) = (hold.digest.clone(), hold.revision);
        let arguments = match arguments.as_deref().map(json).transpose() {
            Ok(arguments) => arguments,
            Err(error) => return self.said = plain(&error.to_string()),
        };
        let digest = digest.as_ref().map(Text::raw);
        let (arguments, revision) = (arguments.as_deref(), Some(revision));
        self.decide(server, wanted, &Decision { arguments, digest, revision, ..Decision::of("approve") });
    }

    fn decide(&mut self, server: &Server, wanted: &List, decision: &Decision<'_>) {
        let Screen::One { hold, asks, .. } = &mut self.screen else { return };
        *asks = Asks::Nothing;
        match decided(server, hold.id.raw(), decision) {
            Ok(answer) => {
                self.said = answer.line().lines().next().unwrap_or_default().to_owned();
                self.screen = Screen::All;
                self.reload(server, wanted);
            }
            Err(failure) => self.say(&failure),
        }
    }

    /// Lets the person edit the arguments, then shows what they changed.
    fn edit(&mut self) {
        let Screen::One { hold, asks, scroll } = &mut self.screen else { return };
        let Some(before) = &hold.arguments_text else { return };
        let tool = hold.tool.as_ref().map_or(String::new(), Text::to_string);
        match edit::in_editor(&tool, &hold.id.to_string(), before.raw()) {
            Ok((text, draft)) => match json(text.trim()) {
                Ok(_) => {
                    *scroll = 0;
                    let diff = diff(before.raw(), text.trim());
                    *asks = Asks::Edited { arguments: text.trim().to_owned(), diff };
                }
                Err(error) => {
                    self.said = format!("not JSON: {}; {}", plain(&error.to_string()), draft.keep());
                }
            },
            Err(failure) => self.say(&failure),
        }
    }

    /// What a key means.
    fn key(&mut self, key: KeyEvent) -> PickerAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { PickerAction::Leave } else { PickerAction::Nothing };
        }
        match &mut self.screen {
            Screen::All => self.key_in_list(key.code),
            Screen::One { asks: Asks::Reason(text), .. } => match written(text, key.code) {
                InputStep::GoesOn => PickerAction::Nothing,
                InputStep::Done(reason) => PickerAction::Deny { reason },
                InputStep::Left => self.ask(Asks::Nothing),
            },
            Screen::One { asks: Asks::Answer(text), .. } => match written(text, key.code) {
                InputStep::GoesOn => PickerAction::Nothing,
                InputStep::Done(answer) => PickerAction::Answer(answer),
                InputStep::Left => self.ask(Asks::Nothing),
            },
            Screen::One { asks: Asks::Approval, .. } => match key.code {
                KeyCode::Char('y') => PickerAction::Approve { arguments: None },
                _ => self.ask(Asks::Nothing),
            },
            Screen::One { asks: Asks::Edited { arguments, .. }, .. } => match key.code {
                KeyCode::Char('y') => PickerAction::Approve { arguments: Some(std::mem::take(arguments)) },
                _ => self.ask(Asks::Nothing),
            },
            Screen::One { hold, scroll, asks: Asks::Nothing } => {
                let (is_call, is_question) = (hold.arguments_text.is_some(), hold.kind.raw() == "input");
                match key.code {
                    KeyCode::Char('a') if is_call => self.ask(Asks::Approval),
                    KeyCode::Char('d') => self.ask(Asks::Reason(String::new())),
                    KeyCode::Char('w') if is_question => self.ask(Asks::Answer(String::new())),
                    KeyCode::Char('e') if is_call => PickerAction::Edit,
                    KeyCode::Char('j') | KeyCode::Down => scrolled(scroll, 1),
                    KeyCode::Char('k') | KeyCode::Up => scrolled(scroll, -1),
                    KeyCode::PageDown | KeyCode::Char(' ') => scrolled(scroll, PAGE),
                    KeyCode::PageUp => scrolled(scroll, -PAGE),
                    KeyCode::Esc | KeyCode::Left | KeyCode::Char('h' | 'q') => {
                        self.screen = Screen::All;
                        PickerAction::Reload
                    }
                    _ => PickerAction::Nothing,
                }
            }
        }
    }

    fn key_in_list(&mut self, code: KeyCode) -> PickerAction {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return PickerAction::Leave,
            KeyCode::Char('r') => return PickerAction::Reload,
            KeyCode::Char('j') | KeyCode::Down => self.at += 1,
            KeyCode::Char('k') | KeyCode::Up => self.at = self.at.saturating_sub(1),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => {
                let here = self.holds.get(self.at);
                return here
                    .map_or(PickerAction::Nothing, |hold| PickerAction::Open(hold.id.raw().to_owned()));
            }
            KeyCode::Char('a' | 'd' | 'e') => {
                self.said = "open it first: what is decided must have been on the screen".into();
            }
            _ => {}
        }
        self.at = self.at.min(self.holds.len().saturating_sub(1));
        PickerAction::Nothing
    }

    fn ask(&mut self, what: Asks) -> PickerAction {
        if let Screen::One { asks, .. } = &mut self.screen {
            *asks = what;
        }
        PickerAction::Nothing
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let parts = [Constraint::Length(1), Constraint::Min(1), Constraint::Length(1), Constraint::Length(1)];
        let [title, body, said, keys] = Layout::vertical(parts).areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let heading = match &self.screen {
            Screen::All => format!("Pending holds: {}", self.holds.len()),
            Screen::One { hold, .. } => format!("{}, open for {}", hold.line(), age(hold, self.now)),
        };
        frame.render_widget(Paragraph::new(Line::styled(heading, bold)), title);
        match &self.screen {
            Screen::All => self.draw_list(frame, body),
            Screen::One { hold, scroll, asks } => {
                let lines = match asks {
                    Asks::Edited { diff, .. } => diff.clone(),
                    _ => hold.page().lines().map(str::to_owned).collect(),
                };
                let text: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
                frame.render_widget(Paragraph::new(text).scroll((*scroll, 0)), body);
            }
        }
        frame.render_widget(Paragraph::new(self.prompt()), said);
        let reversed = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Paragraph::new(Line::styled(self.help(), reversed)), keys);
    }

    fn draw_list(&self, frame: &mut Frame<'_>, area: ratatui::layout::Rect) {
        if self.holds.is_empty() {
            return frame.render_widget(Paragraph::new("Nothing waits for anybody."), area);
        }
        let row = |hold: &HoldBody| {
            let tool = hold.tool.as_ref().map_or("-".into(), Text::to_string);
            let HoldBody { kind, agent, id, .. } = hold;
            let what = self.summaries.get(id.raw()).map_or("-".into(), |(_, summary)| summary.clone());
            Row::new([age(hold, self.now), kind.to_string(), tool, agent.to_string(), what])
        };
        let widths = [
            Constraint::Length(4),
            Constraint::Length(9),
            Constraint::Length(24),
            Constraint::Length(16),
            Constraint::Min(20),
        ];
        let table = Table::new(self.holds.iter().map(row), widths)
            .header(Row::new(["AGE", "KIND", "TOOL", "AGENT", "WHAT"]))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
            .highlight_symbol("> ");
        let mut state = TableState::default().with_selected(Some(self.at));
        frame.render_stateful_widget(table, area, &mut state);
    }

    /// What the person is asked, or what was said last.
    fn prompt(&self) -> String {
        let Screen::One { hold, asks, .. } = &self.screen else { return self.said.clone() };
        let tool = hold.tool.as_ref().map_or(String::new(), Text::to_string);
        match asks {
            Asks::Nothing => self.said.clone(),
            Asks::Approval => format!("Run {tool} once with {}? y: yes, any other key: no", summary(hold)),
            Asks::Edited { .. } => {
                format!("Run {tool} once with the lines marked +? y: yes, any other key: no")
            }
            Asks::Reason(text) => format!("Reason, which the agent sees: {}_", plain(text)),
            Asks::Answer(text) => format!("Answer: {}_", plain(text)),
        }
    }

    fn help(&self) -> &'static str {
        match &self.screen {
            Screen::All => " ↑↓ choose   enter open   r reload   q leave ",
            Screen::One { asks: Asks::Nothing, hold, .. } if hold.kind.raw() == "input" => {
                " w answer   d deny   ↑↓ scroll   esc back "
            }
            Screen::One { asks: Asks::Nothing, .. } => " a approve   d deny   e edit   ↑↓ scroll   esc back ",
            Screen::One { asks: Asks::Reason(_) | Asks::Answer(_), .. } => " enter send   esc leave it ",
            Screen::One { .. } => " y yes   any other key no ",
        }
    }
}

/// What became of a line that is being written.
enum InputStep {
    GoesOn,
    Done(String),
    Left,
}

fn written(text: &mut String, code: KeyCode) -> InputStep {
    match code {
        KeyCode::Enter => return InputStep::Done(std::mem::take(text)),
        KeyCode::Esc => return InputStep::Left,
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char(c) => text.push(c),
        _ => {}
    }
    InputStep::GoesOn
}

fn scrolled(scroll: &mut u16, by: i16) -> PickerAction {
    *scroll = scroll.saturating_add_signed(by);
    PickerAction::Nothing
}

/// The lines of both texts, each with what became of it: kept, gone (`-`) or new (`+`), as they were written.
fn diff(before: &str, after: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let kept_first = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let rest = old.len().min(new.len()) - kept_first;
    let kept_last = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let marked = |mark: char, lines: &[&str]| -> Vec<String> {
        lines.iter().map(|line| format!("{mark} {}", block(line).trim_end())).collect()
    };
    let mut lines = marked(' ', &old[..kept_first]);
    lines.extend(marked('-', &old[kept_first..old.len() - kept_last]));
    lines.extend(marked('+', &new[kept_first..new.len() - kept_last]));
    lines.extend(marked(' ', &old[old.len() - kept_last..]));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_hold() -> HoldBody {
        let hold = serde_json::json!({
            "id": "hold_1", "run": "run_1", "agent": "ops", "session": "s-1", "kind": "approval", "state": "open",
            "tool": "delete_file", "opened_at": "2026-01-01T00:00:00Z", "arguments_text": "{\"path\": \"/x\"}",
            "digest": "abc", "revision": 2,
        });
        serde_json::from_str(&hold.to_string()).unwrap()
    }

    fn press(picker: &mut Picker, code: KeyCode) -> PickerAction {
        picker.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn nothing_is_approved_from_the_list_or_with_one_key() {
        let mut picker = Picker::new(vec![a_hold()]);
        assert_eq!(press(&mut picker, KeyCode::Char('a')), PickerAction::Nothing);
        assert_eq!(press(&mut picker, KeyCode::Char('y')), PickerAction::Nothing);
        assert_eq!(press(&mut picker, KeyCode::Enter), PickerAction::Open("hold_1".into()));
        picker.open(a_hold());
        assert_eq!(press(&mut picker, KeyCode::Char('a')), PickerAction::Nothing);
        assert!(picker.prompt().contains("{\"path\": \"/x\"}"), "{}", picker.prompt());
        assert_eq!(press(&mut picker, KeyCode::Enter), PickerAction::Nothing, "only y is a yes");
        assert_eq!(press(&mut picker, KeyCode::Char('y')), PickerAction::Nothing, "the question is gone");
        press(&mut picker, KeyCode::Char('a'));
        assert_eq!(press(&mut picker, KeyCode::Char('y')), PickerAction::Approve { arguments: None });
    }

    #[test]
    fn a_reason_is_written_and_can_be_left() {
        let mut picker = Picker::new(vec![a_hold()]);
        picker.open(a_hold());
        press(&mut picker, KeyCode::Char('d'));
        for c in "noa".chars() {
            press(&mut picker, KeyCode::Char(c));
        }
        press(&mut picker, KeyCode::Backspace);
        assert_eq!(press(&mut picker, KeyCode::Enter), PickerAction::Deny { reason: "no".into() });
        press(&mut picker, KeyCode::Char('d'));
        press(&mut picker, KeyCode::Char('x'));
        assert_eq!(press(&mut picker, KeyCode::Esc), PickerAction::Nothing);
        assert!(matches!(picker.screen, Screen::One { asks: Asks::Nothing, .. }));
    }

    #[test]
    fn a_diff_marks_what_changed() {
        let lines = diff("{\n\"a\": 1,\n\"b\": 2\n}", "{\n\"a\": 3,\n\"b\": 2\n}");
        let marks: Vec<char> = lines.iter().filter_map(|line| line.chars().next()).collect();
        assert_eq!(marks, [' ', '-', '+', ' ', ' ']);
        assert!(lines[2].contains("\"a\": 3"), "{lines:?}");
        assert_eq!(diff("a\na", "a").len(), 2);
    }
}
