//! A diagram of a call and its reply, with the data that moves by Send, RDMA Read and RDMA Write.

use super::{
    diagram::{start_text, text},
    html::{Html, cut},
};

const WIDTH: i64 = 860;
/// The x coordinate of the lifeline of the client.
const CALLER: i64 = 90;
/// The x coordinate of the lifeline of the server.
const SERVER: i64 = 770;
const MIDDLE: i64 = (CALLER + SERVER) / 2;
/// The vertical distance between arrows.
const STEP: i64 = 52;
const TOP: i64 = 40;

/// The maximum length of the text above and below an arrow, in characters.
const MAX_TEXT: usize = 84;

/// The RDMA operation that moves data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferMeans {
    /// The Send of the call.
    Call,
    /// An RDMA Read, by which the server fetches an argument from the client.
    Read,
    /// An RDMA Write, by which the server places a result in client memory.
    Write,
    /// The Send of the reply.
    Reply,
}

/// An arrow of the diagram, for data that moves between client and server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrow {
    pub(super) means: TransferMeans,
    /// The data that moves.
    pub(super) what: String,
    /// The text that states the maximum size of the data.
    pub(super) max: String,
}

/// Draws the message flow of the procedure `name`. `arrows` are in the order of the transfers.
pub(super) fn draw(name: &str, arrows: &[Arrow], out: &mut Html) {
    let to_server = |arrow: &&Arrow| matches!(arrow.means, TransferMeans::Call | TransferMeans::Read);
    let handler = arrows.iter().take_while(to_server).count();
    let steps = i64::try_from(arrows.len()).unwrap_or_default();
    let bottom = TOP + steps * STEP + 34;
    out.raw("<svg class=\"flow\" role=\"img\" viewBox=\"0 0 ").number(WIDTH).raw(" ").number(bottom);
    out.raw("\"><title>Message flow of ").text(name).raw("</title>\n");
    for (x, end) in [(CALLER, "client"), (SERVER, "server")] {
        out.raw("<path class=\"lifeline\" d=\"M").number(x).raw(" 30V").number(bottom - 6).raw("\"/>");
        out.raw("<rect class=\"end\" rx=\"6\" x=\"").number(x - 52).raw("\" y=\"4\" width=\"104\" height=\"26\"/>");
        text("label", x, 22, end, out);
    }
    out.raw("\n");
    let mut y = TOP;
    for (at, arrow) in arrows.iter().enumerate() {
        if at == handler {
            out.raw("<rect class=\"handler\" rx=\"6\" x=\"").number(SERVER - 40).raw("\" y=\"").number(y + 2);
            out.raw("\" width=\"80\" height=\"24\"/>");
            text("label", SERVER, y + 19, "handler", out);
            y += 30;
        }
        y += STEP;
        self::arrow(arrow, y - 18, out);
    }
    out.raw("</svg>\n");
}

fn arrow(arrow: &Arrow, y: i64, out: &mut Html) {
    let (class, verb) = match arrow.means {
        TransferMeans::Call => ("send", "Send"),
        TransferMeans::Read => ("read", "RDMA Read"),
        TransferMeans::Write => ("write", "RDMA Write"),
        TransferMeans::Reply => ("send", "Send"),
    };
    out.raw("<g class=\"")
        .raw(class)
        .raw("\"><title>")
        .show(format_args!("{}: {}", arrow.what, arrow.max))
        .raw("</title>");
    let right = matches!(arrow.means, TransferMeans::Call | TransferMeans::Read);
    let (from, to, head) = if right { (CALLER + 4, SERVER - 5, -10) } else { (SERVER - 4, CALLER + 5, 10) };
    out.raw("<path class=\"shaft\" d=\"M").number(from).raw(" ").number(y).raw("H").number(to + head).raw("\"/>");
    out.raw("<path class=\"head\" d=\"M").number(to).raw(" ").number(y).raw("l").number(head).raw(" -6v12z\"/>");
    start_text("what", MIDDLE, y - 8, out);
    out.raw("<tspan class=\"verb\">").raw(verb).raw("</tspan> ");
    out.text(&cut(&arrow.what, MAX_TEXT - 12));
    out.raw("</text>");
    text("most", MIDDLE, y + 17, &cut(&arrow.max, MAX_TEXT), out);
    out.raw("</g>\n");
}
