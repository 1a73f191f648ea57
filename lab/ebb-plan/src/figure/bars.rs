//! Numbers against names.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::frame::{self, Entry, Sample};
use super::{Bars, Figure};

/// The figure as SVG.
pub fn draw(figure: &Figure, bars: &Bars) -> String {
    let entries: Vec<Entry<'_>> = bars
        .groups
        .iter()
        .enumerate()
        .map(|(index, group)| Entry { name: &group.0, sample: Sample::Square, colour: frame::colour(index) })
        .collect();
    let up = bars.y.fix(tops(bars).into_iter());
    let count = bars.categories.len().max(1) as f64;
    frame::draw(figure, &entries, |area| {
        let mut plot = ChartBuilder::on(area)
            .margin_left(14 * frame::FINE)
            .margin_right(20 * frame::FINE)
            .margin_bottom(8 * frame::FINE)
            .margin_top(6 * frame::FINE)
            .x_label_area_size(48 * frame::FINE)
            .y_label_area_size(76 * frame::FINE)
            .build_cartesian_2d(0.0..count, up.clone())?;
        plot.configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .bold_line_style(frame::RULE.stroke_width(frame::FINE))
            .light_line_style(TRANSPARENT)
            .axis_style(frame::GREY.stroke_width(frame::FINE))
            .set_all_tick_mark_size(5 * frame::FINE)
            .y_labels(up.ticks.len().max(1))
            .y_label_formatter(&|place| up.label(*place))
            .label_style(frame::text(13, frame::GREY))
            .axis_desc_style(frame::text(13, frame::INK))
            .y_desc(bars.y.label.clone())
            .draw()?;
        for (from, to, colour) in boxes(bars) {
            let (Some(low), Some(high)) = (up.place(from.1), up.place(to.1)) else { continue };
            plot.draw_series([Rectangle::new([(from.0, low), (to.0, high)], colour.filled())])?;
        }
        if let Some(level) = bars.line.and_then(|line| up.place(line)) {
            plot.draw_series([PathElement::new([(0.0, level), (count, level)], frame::INK.stroke_width(frame::FINE))])?;
        }
        let (left, top) = area.get_base_pixel();
        let below = Pos::new(HPos::Center, VPos::Top);
        for (index, name) in bars.categories.iter().enumerate() {
            let (x, y) = plot.backend_coord(&(index as f64 + 0.5, up.range.start));
            let slot = plot.backend_coord(&(1.0, up.range.start)).0 - plot.backend_coord(&(0.0, up.range.start)).0;
            let letters = usize::try_from(slot / (LETTER * frame::UNIT)).unwrap_or(0);
            for (line, words) in fold(name, letters).into_iter().enumerate() {
                let down = (8 + 16 * line as i32) * frame::UNIT;
                area.draw(&Text::new(words, (x - left, y - top + down), frame::text(13, frame::INK).pos(below)))?;
            }
        }
        Ok(())
    })
}

/// Mean width of a letter of a label.
const LETTER: i32 = 8;

/// A label in one line, or in two if it has more than `letters`: broken behind the hyphen or space nearest its middle.
fn fold(name: &str, letters: usize) -> Vec<&str> {
    if name.chars().count() <= letters {
        return vec![name];
    }
    let breaks = name.char_indices().filter(|(_, letter)| "- ".contains(*letter)).map(|(at, _)| at + 1);
    match breaks.min_by_key(|at| at.abs_diff(name.len() / 2)) {
        Some(at) => vec![name[..at].trim_end(), &name[at..]],
        None => vec![name],
    }
}

/// Corner, opposite corner, colour.
type Box = ((f64, f64), (f64, f64), RGBColor);

fn boxes(bars: &Bars) -> Vec<Box> {
    let mut out = Vec::new();
    let width = 0.76 / if bars.stacked { 1.0 } else { bars.groups.len().max(1) as f64 };
    for category in 0..bars.categories.len() {
        let mut base = 0.0;
        for (index, (_, values)) in bars.groups.iter().enumerate() {
            let Some(value) = values.get(category).copied().filter(|value| value.is_finite()) else { continue };
            let beside = if bars.stacked { 0.0 } else { index as f64 * width };
            let left = category as f64 + 0.12 + beside;
            let gap = if bars.stacked { 0.0 } else { width * 0.06 };
            out.push(((left + gap, base), (left + width - gap, base + value), frame::colour(index)));
            if bars.stacked {
                base += value;
            }
        }
    }
    out
}

fn tops(bars: &Bars) -> Vec<f64> {
    boxes(bars).into_iter().flat_map(|one| [one.0.1, one.1.1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_wider_than_its_place_is_broken_near_its_middle() {
        assert_eq!(fold("tide", 3), ["tide"]);
        assert_eq!(fold("blink-circular", 20), ["blink-circular"]);
        assert_eq!(fold("blink-circular", 10), ["blink-", "circular"]);
        assert_eq!(fold("a long name of four", 10), ["a long", "name of four"]);
    }
}
