//! A diagram of the encoding of a type, in the style of the RFCs, with a width of one 4-byte word.

use super::{
    html::{Html, cut},
    names::{ItemUsers, item_anchor},
    wire::{Row, RowStyle},
};

/// The width of the diagram, in SVG user units.
const WIDTH: i64 = 860;
/// The x coordinate of the words. The byte offset of a row is to the left.
const LEFT: i64 = 64;
/// The width of a 4-byte word, in SVG user units.
const WORD: i64 = 432;
/// The x coordinate of the notes, to the right of the words.
const NOTE: i64 = LEFT + WORD + 16;

/// The y coordinate of the first row, below the byte numbers.
const TOP: i64 = 22;

/// The maximum length of the label in a row, in characters.
const MAX_LABEL: usize = 48;
/// The maximum length of the note beside a row, in characters.
const MAX_NOTE: usize = 52;

fn height(row: &Row) -> i64 {
    match (row.style, row.bytes) {
        (RowStyle::Case, _) => 26,
        (RowStyle::Variable, _) => 46,
        (RowStyle::Type, _) => 38,
        (_, Some(16..)) => 72,
        (_, Some(5..)) => 52,
        _ => 28,
    }
}

/// Draws the diagram of the type `name`, whose encoding is `rows`.
pub(super) fn draw(names: &ItemUsers<'_>, name: &str, rows: &[Row], out: &mut Html) {
    let bottom = TOP + rows.iter().map(height).sum::<i64>() + 4;
    out.raw("<svg class=\"wire\" role=\"img\" viewBox=\"0 0 ").number(WIDTH).raw(" ").number(bottom);
    out.raw("\"><title>").text(name).raw(" on the wire</title>\n");
    for byte in 0..4_i64 {
        let x = LEFT + WORD / 8 + byte * WORD / 4;
        text("tick", x, TOP - 8, &byte.to_string(), out);
    }
    // The byte offset of each row, if known. All cases begin at the same offset.
    let (mut offset, mut first_case) = (Some(0), None);
    let mut y = TOP;
    for row in rows {
        let height = height(row);
        if row.style == RowStyle::Case {
            offset = *first_case.get_or_insert(offset);
        }
        if let Some(offset) = offset.filter(|_| row.style != RowStyle::Case) {
            text("offset", LEFT - 8, y + 18, &offset.to_string(), out);
        }
        draw_row(names, row, y, height, out);
        offset = offset.zip(row.bytes).and_then(|(at, bytes)| u64::checked_add(at, bytes));
        y += height;
    }
    out.raw("</svg>\n");
}

fn draw_row(names: &ItemUsers<'_>, row: &Row, y: i64, height: i64, out: &mut Html) {
    if row.style == RowStyle::Case {
        return draw_case(row, y, out);
    }
    let middle = y + height / 2 + 5;
    if let Some(id) = row.link {
        out.raw("<a href=\"#").text(&item_anchor(names.name(id))).raw("\">");
    }
    out.raw("<g><title>").show(format_args!("{}: {}", row.label, row.note)).raw("</title>");
    draw_box(row, y, height, out);
    text(
        "label",
        LEFT + WORD / 2,
        if row.bytes.is_some() { middle } else { middle - 3 },
        &cut(&row.label, MAX_LABEL),
        out,
    );
    out.raw("</g>");
    if row.link.is_some() {
        out.raw("</a>");
    }
    if row.eligible {
        text("note", NOTE, middle - 8, &cut(&row.note, MAX_NOTE), out);
        text("note moves", NOTE, middle + 8, "DDP-eligible: may move in a chunk", out);
    } else {
        text("note", NOTE, middle, &cut(&row.note, MAX_NOTE), out);
    }
    out.raw("\n");
}

/// Draws the label and the note of a union case.
fn draw_case(row: &Row, y: i64, out: &mut Html) {
    text("case", LEFT, y + 18, &cut(&row.label, 110), out);
    text(
        "note",
        LEFT + 8 + 8 * i64::try_from(row.label.chars().count().min(110)).unwrap_or_default(),
        y + 18,
        &row.note,
        out,
    );
}

/// Draws the outline of a row. If its length is fixed, marks separate the bytes of a word and, except in a row of style
/// `Type`, up to four words. Otherwise, the lower edge is jagged.
fn draw_box(row: &Row, y: i64, height: i64, out: &mut Html) {
    out.raw("<path class=\"");
    out.raw(match row.style {
        _ if row.eligible => "eligible",
        RowStyle::Control => "control",
        RowStyle::Type => "type",
        RowStyle::Variable => "variable",
        _ => "value",
    });
    out.raw("\" d=\"M").number(LEFT).raw(" ").number(y).raw("h").number(WORD).raw("v");
    if row.bytes.is_some() {
        out.number(height).raw("h-").number(WORD).raw("z\"/>");
        // Marks between the bytes of a word, and between words.
        for quarter in 1..4_i64 {
            let x = LEFT + quarter * WORD / 4;
            out.raw("<path class=\"mark\" d=\"M").number(x).raw(" ").number(y + height - 4).raw("v4\"/>");
        }
        if let Some(words @ 2..=4) = row.bytes.map(|bytes| bytes / 4).filter(|_| row.style != RowStyle::Type) {
            for word in 1..i64::try_from(words).unwrap_or_default() {
                let at = y + height * word / i64::try_from(words).unwrap_or(1);
                out.raw("<path class=\"mark\" d=\"M")
                    .number(LEFT)
                    .raw(" ")
                    .number(at)
                    .raw("h6m")
                    .number(WORD - 12)
                    .raw(" 0h6\"/>");
            }
        }
    } else {
        // A jagged edge, because the length varies.
        out.number(height - 6);
        for _ in 0..WORD / 12 {
            out.raw("l-6 4l-6 -4");
        }
        out.raw("z\"/>");
    }
}

/// Draws text at a position, with a class of the style sheet.
pub(super) fn text(class: &'static str, x: i64, y: i64, content: &str, out: &mut Html) {
    start_text(class, x, y, out);
    out.text(content).raw("</text>");
}

/// Starts an element for text at a position.
pub(super) fn start_text(class: &'static str, x: i64, y: i64, out: &mut Html) {
    out.raw("<text class=\"").raw(class).raw("\" x=\"").number(x).raw("\" y=\"").number(y).raw("\">");
}
