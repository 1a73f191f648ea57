//! Parts of all figures: paper, title, legend, fonts, colours.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Figure, Mark};

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Size of every figure as it is shown; it scales to any size.
const SIZE: (u32, u32) = (880, 500);
/// plotters places everything on whole units: with many of them to a shown one, slopes have no steps.
pub const FINE: u32 = 8;
/// [`FINE`] as a signed number, for places.
pub const UNIT: i32 = FINE as i32;
const FONT: &str = "Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";
pub const INK: RGBColor = RGBColor(0x1f, 0x29, 0x33);
pub const GREY: RGBColor = RGBColor(0x61, 0x6e, 0x7c);
pub const RULE: RGBColor = RGBColor(0xe4, 0xe7, 0xeb);

/// Okabe and Ito's palette, without the yellow that is lost on white paper.
const PALETTE: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x33, 0x33, 0x33),
];

/// An entry of the legend.
pub struct Entry<'a> {
    pub name: &'a str,
    pub sample: Sample,
    pub colour: RGBColor,
}

/// The mark before a name in the legend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sample {
    Square,
    Mark(Mark, usize),
}

/// Colour of the `index`-th series.
pub const fn colour(index: usize) -> RGBColor {
    PALETTE[index % PALETTE.len()]
}

/// Text of this size, its middle at the height where it is placed.
pub fn text(size: u32, colour: RGBColor) -> TextStyle<'static> {
    style(font(size), colour)
}

fn bold(size: u32) -> TextStyle<'static> {
    style(font(size).style(FontStyle::Bold), INK)
}

/// plotters counts a font's size with its leading and writes 1 / 1.24 of it into the SVG.
fn font(size: u32) -> FontDesc<'static> {
    (FONT, f64::from(size * FINE) * 1.24).into_font()
}

fn style(font: FontDesc<'static>, colour: RGBColor) -> TextStyle<'static> {
    TextStyle { font, color: colour.to_backend_color(), pos: Pos::new(HPos::Left, VPos::Center) }
}

/// Draws title and legend, and lets `body` draw in the rest.
pub fn draw(figure: &Figure, entries: &[Entry<'_>], body: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (SIZE.0 * FINE, SIZE.1 * FINE)).into_drawing_area();
        let drawn = root.fill(&WHITE).and_then(|()| {
            let height = head(&root, figure, entries)?;
            let rest = root.split_vertically(height).1;
            body(&rest)?;
            root.present()
        });
        drawn.expect("drawing into memory does not fail");
    }
    let drawn = format!("width=\"{}\" height=\"{}\"", SIZE.0 * FINE, SIZE.1 * FINE);
    svg.replacen(&drawn, &format!("width=\"{}\" height=\"{}\"", SIZE.0, SIZE.1), 1)
}

fn head(root: &Area<'_>, figure: &Figure, entries: &[Entry<'_>]) -> Result<u32, DrawingAreaErrorKind<std::io::Error>> {
    let left = 20;
    let mut y = 24;
    root.draw(&Text::new(figure.title.clone(), (left * UNIT, y * UNIT), bold(18)))?;
    if !figure.subtitle.is_empty() {
        y += 22;
        root.draw(&Text::new(figure.subtitle.clone(), (left * UNIT, y * UNIT), text(13, GREY)))?;
    }
    if entries.len() > 1 || entries.iter().any(|entry| entry.sample == Sample::Square && !entry.name.is_empty()) {
        y += 26;
        let mut x = left;
        for entry in entries {
            let width = 44 + (entry.name.chars().count() as f64 * 7.0) as i32;
            if x + width > SIZE.0 as i32 - 10 && x > left {
                x = left;
                y += 20;
            }
            sample(root, (x * UNIT, y * UNIT), entry)?;
            root.draw(&Text::new(entry.name.to_owned(), ((x + 30) * UNIT, y * UNIT), text(13, INK)))?;
            x += width;
        }
    }
    Ok((u32::try_from(y).expect("below the top") + 14) * FINE)
}

fn sample(root: &Area<'_>, (x, y): (i32, i32), entry: &Entry<'_>) -> Drawn {
    match entry.sample {
        Sample::Square => root.draw(&Rectangle::new(
            [(x + 8 * UNIT, y - 6 * UNIT), (x + 22 * UNIT, y + 6 * UNIT)],
            entry.colour.filled(),
        )),
        Sample::Mark(Mark::Points, shape) => marker(root, (x + 13 * UNIT, y), shape, entry.colour),
        Sample::Mark(mark, shape) => {
            let width = if mark == Mark::Reference { 1 } else { 3 };
            let style = entry.colour.stroke_width(width * FINE);
            let pieces: &[(i32, i32)] = if matches!(mark, Mark::Dashed | Mark::DashedStep) {
                &[(0, 7), (10, 17), (20, 26)]
            } else {
                &[(0, 26)]
            };
            for (from, to) in pieces {
                root.draw(&PathElement::new(vec![(x + from * UNIT, y), (x + to * UNIT, y)], style))?;
            }
            if mark == Mark::Markers { marker(root, (x + 13 * UNIT, y), shape, entry.colour) } else { Ok(()) }
        }
    }
}

/// A marker. Five shapes can be distinguished without colour.
pub fn marker(root: &Area<'_>, (x, y): (i32, i32), shape: usize, colour: RGBColor) -> Drawn {
    let fill = colour.filled();
    let at = |across: i32, down: i32| (x + across * UNIT, y + down * UNIT);
    match shape % 5 {
        0 => root.draw(&Circle::new((x, y), 4 * UNIT, fill)),
        1 => root.draw(&Rectangle::new([at(-4, -4), at(4, 4)], fill)),
        2 => root.draw(&Polygon::new(vec![at(0, -5), at(5, 4), at(-5, 4)], fill)),
        3 => root.draw(&Polygon::new(vec![at(0, -6), at(5, 0), at(0, 6), at(-5, 0)], fill)),
        _ => root.draw(&Cross::new((x, y), 4 * UNIT, colour.stroke_width(2 * FINE))),
    }
}
