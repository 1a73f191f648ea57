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
            .x_label_area_size(34 * frame::FINE)
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
            area.draw(&Text::new(
                name.clone(),
                (x - left, y - top + 8 * frame::UNIT),
                frame::text(13, frame::INK).pos(below),
            ))?;
        }
        Ok(())
    })
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
