//! Drawing of a gateway's snapshot on a terminal.

use ratatui::{
    Frame,
    crossterm::event::KeyCode,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize as _},
    text::Line,
    widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table},
};
use relay::{
    status::{GatewaySnapshot, PeerStatus, TransferStatus, final_path},
    transfer_log::TransferRecord,
};
use units::{BitRate, ByteCount};

use super::History;

/// Data that the screen shows.
pub(super) struct View {
    pub(super) snapshot: GatewaySnapshot,
    /// Reason why no new snapshot has arrived. `None` if the snapshot is current.
    pub(super) trouble: Option<String>,
    /// Number of transfers that are scrolled out above the first visible transfer.
    pub(super) scroll: usize,
}

impl View {
    pub(super) fn scroll(&mut self, key: KeyCode) {
        let most = self.snapshot.transfers.len().saturating_sub(1);
        self.scroll = match key {
            KeyCode::Up => self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll + 1,
            KeyCode::PageUp => self.scroll.saturating_sub(PAGE),
            KeyCode::PageDown => self.scroll + PAGE,
            KeyCode::Home => 0,
            _ => self.scroll,
        }
        .min(most);
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, view: &View, history: &History) {
    let peers = view.snapshot.peers.len() as u16;
    let [head, links, transfers, finished] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length((peers * LINES_OF_PEER + 1).min(frame.area().height / 2)),
        Constraint::Min(3),
        Constraint::Length(FINISHED_LINES),
    ])
    .areas(frame.area());
    draw_head(frame, head, view);
    draw_peers(frame, links, &view.snapshot.peers, history);
    draw_transfers(frame, transfers, view);
    draw_finished(frame, finished, &view.snapshot.finished);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let GatewaySnapshot {
        version,
        sessions_open,
        transfers_completed_total,
        transfers_failed_total,
        ..
    } = &view.snapshot;
    let line = match &view.trouble {
        Some(trouble) => Line::from(format!(" {trouble}")).white().on_red(),
        None => Line::from(format!(
            " longhaul {version}   sessions {sessions_open}   transfers {transfers_completed_total} done, \
             {transfers_failed_total} broken   q ends"
        ))
        .reversed(),
    };
    frame.render_widget(Paragraph::new(line), area);
}

fn draw_peers(frame: &mut Frame<'_>, area: Rect, peers: &[PeerStatus], history: &History) {
    let block = Block::new().borders(Borders::TOP).title(" peers ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let rows = Layout::vertical(peers.iter().map(|_| Constraint::Length(LINES_OF_PEER)));
    for (peer, row) in peers.iter().zip(rows.split(inner).iter()) {
        let [line, plot] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1)]).areas(*row);
        frame.render_widget(Paragraph::new(peer_line(peer)), line);
        let rates = history.last(&peer.name, plot.width.into());
        frame.render_widget(Sparkline::default().data(&rates).style(Color::Cyan), plot);
    }
}

fn peer_line(peer: &PeerStatus) -> Line<'static> {
    let ms = |time: Option<f64>| time.map_or("-".to_owned(), |it| format!("{it:.1}"));
    let colour = match peer.state.as_str() {
        "up" => Color::Green,
        "connecting" => Color::Yellow,
        _ => Color::Red,
    };
    let rest = format!(
        "  RTT {} ms  queue {} ms  loss {:.2} %  out {}  in {}  allowed {}",
        ms(peer.rtt_ms),
        ms(peer.queue_delay_ms),
        peer.loss * 100.0,
        rate(peer.send_bits_per_s),
        rate(peer.receive_bits_per_s),
        rate(peer.allowed_bits_per_s),
    );
    Line::from(vec![
        peer.name.clone().bold(),
        "  ".into(),
        peer.state.clone().fg(colour),
        rest.into(),
    ])
}

fn draw_transfers(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let mut transfers: Vec<&TransferStatus> = view.snapshot.transfers.iter().collect();
    transfers.sort_by_key(|it| std::cmp::Reverse(it.bits_per_s));
    let count = transfers.len();
    let rows = transfers.into_iter().skip(view.scroll).map(|it| {
        let client = match it.client.is_empty() {
            true => it.peer.clone(),
            false => it.client.clone(),
        };
        Row::new([
            it.kind.clone(),
            client,
            it.target.clone(),
            ByteCount::new(it.up_bytes).measured().to_string(),
            ByteCount::new(it.down_bytes).measured().to_string(),
            on_wan(it.up_bytes + it.down_bytes, it.wan_bytes),
            rate(it.bits_per_s),
            it.limit.clone(),
            format!("{:.0} s", it.age_s),
        ])
    });
    let widths = [
        Constraint::Length(8),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(13),
        Constraint::Length(13),
        Constraint::Length(8),
    ];
    let titles = [
        "kind", "from", "to", "up", "down", "WAN", "rate", "limited", "age",
    ];
    table(
        frame,
        area,
        &format!(" transfers: {count} "),
        titles,
        widths,
        rows,
    );
}

fn draw_finished(frame: &mut Frame<'_>, area: Rect, finished: &[TransferRecord]) {
    let rows = finished.iter().map(|it| {
        let sign = match it.succeeded {
            true => "done".green(),
            false => "failed".red(),
        };
        Row::new([
            Cell::from(sign),
            Cell::from(it.verb.clone()),
            Cell::from(final_path(&it.path).to_owned()),
            Cell::from(ByteCount::new(it.bytes).measured().to_string()),
            Cell::from(on_wan(it.bytes, it.wan_bytes)),
            Cell::from(rate(it.rate_bit_per_s)),
            Cell::from(format!("{:.1} s", it.duration_s)),
        ])
    });
    let widths = [
        Constraint::Length(6),
        Constraint::Length(5),
        Constraint::Fill(1),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(13),
        Constraint::Length(8),
    ];
    let titles = ["", "verb", "path", "bytes", "WAN", "rate", "took"];
    table(
        frame,
        area,
        " ended, the newest first ",
        titles,
        widths,
        rows,
    );
}

fn table<'a, const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    titles: [&'static str; N],
    widths: [Constraint; N],
    rows: impl Iterator<Item = Row<'a>>,
) {
    let block = Block::new().borders(Borders::TOP).title(title.to_owned());
    let shown = rows.take(area.height.into());
    let table = Table::new(shown, widths)
        .header(Row::new(titles).style(Style::new().dim()))
        .block(block);
    frame.render_widget(table, area);
}

/// Formats the bytes that crossed the WAN. Prints a dash if the gateway does not report this
/// number.
fn on_wan(bytes: u64, wan_bytes: u64) -> String {
    match wan_bytes {
        0 if bytes > 0 => "-".to_owned(),
        wan => ByteCount::new(wan).measured().to_string(),
    }
}

fn rate(bits_per_s: u64) -> String {
    match bits_per_s {
        0 => "-".to_owned(),
        bits => BitRate::bits_per_s(bits).to_string(),
    }
}

/// Number of lines for each peer: a line of numbers and a plot.
const LINES_OF_PEER: u16 = 2;

/// Number of lines for finished transfers: the title, the column heads and six transfers.
const FINISHED_LINES: u16 = 8;

const PAGE: usize = 10;

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    fn snapshot() -> GatewaySnapshot {
        let text = include_str!("snapshot.json");
        serde_json::from_str(text).expect("a snapshot")
    }

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut history = History::default();
        history.add(&view.snapshot);
        let backend = TestBackend::new(width, height);
        let mut terminal = Terminal::new(backend).expect("a screen");
        terminal
            .draw(|frame| draw(frame, view, &history))
            .expect("a screen");
        let buffer = terminal.backend().buffer();
        let cells = buffer.content().iter().map(|it| it.symbol());
        cells.collect()
    }

    #[test]
    fn peers_transfers_and_what_has_ended_are_on_the_screen() {
        let mut view = View {
            snapshot: snapshot(),
            trouble: None,
            scroll: 0,
        };
        let screen = drawn(&view, 120, 30);
        for text in [
            "oslo",
            "up",
            "RTT 200.1 ms",
            "loss 0.10 %",
            "10.0.0.7:5000",
            "film.mov",
            "2.1 MB",
            "WAN",
            "done",
        ] {
            assert!(screen.contains(text), "{text}: {screen}");
        }
        view.trouble = Some("no gateway answers".to_owned());
        assert!(drawn(&view, 120, 30).contains("no gateway answers"));
    }

    #[test]
    fn no_terminal_is_too_small() {
        let view = View {
            snapshot: snapshot(),
            trouble: None,
            scroll: 0,
        };
        for (width, height) in [(1, 1), (10, 3), (40, 10), (300, 100)] {
            drawn(&view, width, height);
        }
    }

    #[test]
    fn scrolling_ends_at_the_last_transfer() {
        let mut view = View {
            snapshot: snapshot(),
            trouble: None,
            scroll: 0,
        };
        for _ in 0..100 {
            view.scroll(KeyCode::PageDown);
        }
        assert_eq!(view.scroll, view.snapshot.transfers.len() - 1);
        view.scroll(KeyCode::Home);
        assert_eq!(view.scroll, 0);
    }
}
