//! Numbers against numbers.

use plotters::prelude::*;

use super::axis::Fixed;
use super::frame::{self, Area, Drawn, Entry, Sample};
use super::{Axis, Figure, Mark, Series};

type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Fixed, Fixed>>;

/// The figure as SVG.
pub fn draw(figure: &Figure, x: &Axis, y: &Axis, series: &[Series]) -> String {
    let values = |pick: fn(&(f64, f64)) -> f64| series.iter().flat_map(|one| &one.points).map(pick);
    let (across, up) = (x.fix(values(|point| point.0)), y.fix(values(|point| point.1)));
    let looks: Vec<Look> = looks(series);
    let entries: Vec<Entry<'_>> = series
        .iter()
        .zip(&looks)
        .map(|(one, look)| Entry { name: &one.name, sample: Sample::Mark(one.mark, look.shape), colour: look.colour })
        .collect();
    frame::draw(figure, &entries, |area| {
        let mut plot = ChartBuilder::on(area)
            .margin_left(14 * frame::FINE)
            .margin_right(30 * frame::FINE)
            .margin_bottom(8 * frame::FINE)
            .margin_top(6 * frame::FINE)
            .x_label_area_size(48 * frame::FINE)
            .y_label_area_size(76 * frame::FINE)
            .build_cartesian_2d(across.clone(), up.clone())?;
        plot.configure_mesh()
            .disable_x_mesh()
            .bold_line_style(frame::RULE.stroke_width(frame::FINE))
            .light_line_style(TRANSPARENT)
            .axis_style(frame::GREY.stroke_width(frame::FINE))
            .set_all_tick_mark_size(5 * frame::FINE)
            .x_labels(across.ticks.len().max(1))
            .y_labels(up.ticks.len().max(1))
            .x_label_formatter(&|place| across.label(*place))
            .y_label_formatter(&|place| up.label(*place))
            .label_style(frame::text(13, frame::GREY))
            .axis_desc_style(frame::text(13, frame::INK))
            .x_desc(x.label.clone())
            .y_desc(y.label.clone())
            .draw()?;
        // References are drawn first, behind the data.
        for behind in [true, false] {
            for (one, look) in series.iter().zip(&looks).filter(|pair| (pair.0.mark == Mark::Reference) == behind) {
                line(area, &mut plot, one, *look, &across, &up)?;
            }
        }
        Ok(())
    })
}

#[derive(Clone, Copy)]
struct Look {
    colour: RGBColor,
    shape: usize,
}

/// References are grey and take no colour from the others.
fn looks(series: &[Series]) -> Vec<Look> {
    let mut next = 0;
    let mut look = |one: &Series| {
        if one.mark == Mark::Reference {
            return Look { colour: frame::GREY, shape: 0 };
        }
        next += 1;
        let hue = one.hue.unwrap_or(next - 1);
        Look { colour: frame::colour(hue), shape: hue }
    };
    series.iter().map(&mut look).collect()
}

fn line(area: &Area<'_>, plot: &mut Plot<'_, '_>, one: &Series, look: Look, across: &Fixed, up: &Fixed) -> Drawn {
    let width = if one.mark == Mark::Reference { 1 } else { 2 };
    let style = look.colour.stroke_width(width * frame::FINE);
    for run in runs(&one.points, across, up) {
        let path = if matches!(one.mark, Mark::Step | Mark::DashedStep) { staircase(&run) } else { run.clone() };
        match one.mark {
            Mark::Points => {}
            Mark::Dashed | Mark::DashedStep => {
                plot.draw_series(DashedLineSeries::new(path, 8 * frame::FINE, 4 * frame::FINE, style))?;
            }
            _ => {
                plot.draw_series(LineSeries::new(path, style))?;
            }
        }
        if matches!(one.mark, Mark::Points | Mark::Markers) {
            for point in &run {
                let (x, y) = plot.backend_coord(point);
                let (left, top) = area.get_base_pixel();
                frame::marker(area, (x - left, y - top), look.shape, look.colour)?;
            }
        }
    }
    Ok(())
}

/// The stretches that can be shown.
fn runs(points: &[(f64, f64)], across: &Fixed, up: &Fixed) -> Vec<Vec<(f64, f64)>> {
    let mut runs = vec![Vec::new()];
    for (x, y) in points {
        match (across.place(*x), up.place(*y)) {
            (Some(x), Some(y)) => runs.last_mut().expect("there is always a run").push((x, y)),
            _ => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

fn staircase(run: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut path = Vec::with_capacity(run.len() * 2);
    for (index, point) in run.iter().enumerate() {
        if index > 0 {
            path.push((point.0, run[index - 1].1));
        }
        path.push(*point);
    }
    path
}
