//! The planners' figures: one function each, used by the commands and the report alike.

use ebb_types::{Result, counted};

use crate::figure::{Axis, Bars, Figure, Mark};
use crate::gears::GearChoice;
use crate::layout::sweep::{Placed, Point};
use crate::layout::{Setting, fluid};
use crate::power::Machines;
use crate::power::blink::{self, Schedule, Stagger};
use crate::power::month::Month;
use crate::raid::Scheme;
use crate::raid::overhead::Grouping;
use crate::raid::reliability::{Inputs, loss};

/// Gear size against recovery group, over all gear sizes (Rabbit, Table 1).
pub fn gears(primaries: u32) -> Result<Figure> {
    let sizes: Result<Vec<GearChoice>> = (1..=primaries).map(|size| GearChoice::new(primaries, size)).collect();
    let sizes = sizes?;
    let points = |value: fn(&GearChoice) -> f64| sizes.iter().map(|one| (one.gear_size.into(), value(one))).collect();
    Ok(Figure::plane("Small gears need large recovery groups", Axis::log("gear size (servers)"), Axis::log("servers"))
        .subtitle(format!("{primaries} primaries; nodes that must be on after one of them has failed"))
        .with("recovery group, the paper's formula", Mark::Line, points(|one| one.recovery_group_formula()))
        .with("whole gear groups that hold a replica", Mark::Step, points(|one| one.gear_groups().into()))
        .with("all nodes on after a failure", Mark::Dashed, points(|one| one.min_active_after_failure().into())))
}

/// Blocks on each node (Rabbit, Figs. 1a and 2).
#[must_use]
pub fn blocks_per_node(settings: &[Setting]) -> Figure {
    let nodes = settings.iter().map(Setting::nodes).max().unwrap_or(1);
    let mut figure = Figure::plane(
        "Blocks stored on each node",
        Axis::linear("node, in the order of the chain").to(f64::from(nodes) + 0.5).whole(),
        Axis::linear("blocks stored"),
    )
    .subtitle(settings.first().map_or(String::new(), describe));
    for setting in settings {
        let stored = setting.blocks_per_node();
        // A node's step is around its number.
        let start = stored.iter().enumerate().map(|(node, held)| (node as f64 + 0.5, *held as f64));
        let end = stored.last().map(|held| (stored.len() as f64 + 0.5, *held as f64));
        let points = start.chain(end).collect();
        figure = figure.with(setting.layout().name(), Mark::Step, points).hue(setting.layout() as usize);
    }
    figure
}

fn describe(setting: &Setting) -> String {
    let primaries = if setting.primaries() > 0 { format!("p = {}, ", setting.primaries()) } else { String::new() };
    format!("N = {}, {primaries}r = {}, B = {}", setting.nodes(), setting.replicas(), setting.blocks())
}

/// Speed of a full read against active nodes, by the formulas.
#[must_use]
pub fn throughput(curves: &[(Setting, Vec<Point>)]) -> Figure {
    let nodes = curves.iter().map(|curve| curve.0.nodes()).max().unwrap_or(1);
    let mut figure = Figure::plane(
        "Speed of a full read against active nodes",
        Axis::linear("active nodes").whole(),
        Axis::linear("throughput (servers' worth)"),
    )
    .subtitle(curves.first().map_or(String::new(), |curve| describe(&curve.0)))
    .with("ideal", Mark::Reference, vec![(0.0, 0.0), (f64::from(nodes), f64::from(nodes))]);
    for (index, (setting, points)) in curves.iter().enumerate() {
        let speed = points.iter().filter_map(|point| Some((f64::from(point.active), point.throughput?))).collect();
        // A first curve that equals the ideal would hide under a later one.
        let mark = if index == 0 { Mark::Line } else { Mark::Dashed };
        figure = figure.with(setting.layout().name(), mark, speed).hue(setting.layout() as usize);
    }
    figure
}

/// Increase of the time of a full read against equal parts (Rabbit, Fig. 1b).
#[must_use]
pub fn read_time(curves: &[(Setting, Vec<Point>)]) -> Figure {
    let mut figure = Figure::plane(
        "A full read takes longer where non-primaries hold too little",
        Axis::linear("active nodes").whole(),
        Axis::linear("increase in read time (%)"),
    )
    .subtitle(curves.first().map_or(String::new(), |curve| describe(&curve.0)));
    for (index, (setting, points)) in curves.iter().enumerate() {
        let longer =
            points.iter().filter_map(|point| Some((f64::from(point.active), point.read_time_increase? * 100.0)));
        let mark = if index == 0 { Mark::Line } else { Mark::Dashed };
        figure = figure.with(setting.layout().name(), mark, longer.collect()).hue(setting.layout() as usize);
    }
    figure
}

/// Placed blocks against active nodes, one curve for each number of failed primaries (Rabbit, Fig. 5).
#[must_use]
pub fn failures(setting: &Setting, curves: &[(u32, Vec<Placed>)]) -> Figure {
    let nodes = f64::from(setting.nodes());
    let gear = setting.grid().map_or(String::new(), |grid| format!(", gears of {}", grid.gear_size()));
    let mut figure = Figure::plane(
        "Performance rises when a gear is complete",
        Axis::linear("active nodes").whole(),
        Axis::linear("throughput (servers' worth)"),
    )
    .subtitle(format!("{}: {}{gear}; optimal assignment of laid-out blocks", setting.layout(), describe(setting)))
    .with("ideal", Mark::Reference, vec![(0.0, 0.0), (nodes, nodes)]);
    for (failed, points) in curves {
        let name = match failed {
            0 => "no failure".to_owned(),
            1 => "one primary failed".to_owned(),
            more => format!("{more} primaries failed"),
        };
        let mark = if *failed == 0 { Mark::Step } else { Mark::DashedStep };
        let speed = points.iter().filter_map(|point| Some((f64::from(point.active), point.throughput?)));
        figure = figure.with(name, mark, speed.collect());
    }
    figure
}

/// A number of stored datasets with its points: (live, average, worst).
pub type Degrees = (u32, Vec<(f64, f64, f64)>);

/// Degrees of power-proportionality: (live datasets, average, worst) for each number of stored datasets.
#[must_use]
pub fn degrees(subtitle: &str, curves: &[Degrees]) -> Figure {
    let mut figure = Figure::plane(
        "Sharing nodes between datasets costs little power-proportionality",
        Axis::linear("live datasets").from(1.0).whole(),
        Axis::linear("degree of power-proportionality").from(0.5).to(1.0),
    )
    .subtitle(subtitle);
    for (stored, points) in curves {
        let average = points.iter().map(|point| (point.0, point.1)).collect();
        figure = figure.with(format!("average of {}", counted((*stored).into(), "dataset")), Mark::Markers, average);
    }
    if let Some((stored, points)) = curves.last() {
        figure = figure.with(
            format!("worst of {stored}"),
            Mark::Dashed,
            points.iter().map(|point| (point.0, point.2)).collect(),
        );
    }
    figure
}

/// Inaccessible blocks under random placement (BlinkFS, Fig. 2).
#[must_use]
pub fn inaccessible(nodes: u32, replicas: &[u32]) -> Figure {
    let mut figure = Figure::plane(
        "Random placement loses sight of most data once half the nodes sleep",
        Axis::linear("inactive nodes (%)").to(100.0),
        Axis::linear("inaccessible blocks (%)").to(100.0),
    )
    .subtitle(format!("N = {nodes}; C(m,k) / C(n,k)"));
    for copies in replicas {
        let share = |percent: u32| {
            let inactive = u64::from(nodes) * u64::from(percent) / 100;
            (f64::from(percent), fluid::inaccessible(nodes.into(), inactive, (*copies).into()) * 100.0)
        };
        let name = if *copies == 1 { "1 copy".to_owned() } else { format!("{copies} copies") };
        figure = figure.with(name, Mark::Line, (0..=100).map(share).collect()).hue(*copies as usize - 1);
    }
    figure
}

/// Copies that keep every block available (BlinkFS, Sec. 4.2).
#[must_use]
pub fn replicas_needed(machines: &Machines) -> Figure {
    let watts = |percent: u32| machines.full_watts() * f64::from(percent) / 100.0;
    let curve = |formula: fn(&Machines, f64) -> Option<u64>| {
        let needed =
            |percent| (f64::from(percent), formula(machines, watts(percent)).map_or(f64::NAN, |copies| copies as f64));
        (1..=100).map(needed).collect()
    };
    Figure::plane(
        "Copies needed for a block to be always in reach",
        Axis::linear("power (% of all nodes active)").to(100.0),
        Axis::linear("copies"),
    )
    .subtitle(format!(
        "N = {}, {} W active, {} W asleep; below one node's power no number is enough",
        machines.nodes, machines.active_watts, machines.sleep_watts
    ))
    .with("exact, circular stagger", Mark::Step, curve(blink::replicas_exact))
    .with("the paper's formula", Mark::DashedStep, curve(blink::replicas_paper))
}

/// Read latency against power for some numbers of copies (BlinkFS, Fig. 8a).
#[must_use]
pub fn latency(machines: &Machines, replicas: &[u32], interval_s: f64, stagger: Stagger) -> Figure {
    let mut figure = Figure::plane(
        "Copies take the wait out of blinking",
        Axis::linear("power (% of all nodes active)").to(100.0),
        Axis::linear("mean wait of a read (s)"),
    )
    .subtitle(format!("N = {}, interval {interval_s} s, reads at any moment alike", machines.nodes));
    for copies in replicas {
        let wait = |percent: u32| {
            let awake = machines.awake_share(machines.full_watts() * f64::from(percent) / 100.0);
            let wait = blink::wait(&Schedule { nodes: machines.nodes, awake, stagger }, *copies);
            (f64::from(percent), wait.mean * interval_s)
        };
        let name = if *copies == 1 { "1 copy".to_owned() } else { format!("{copies} copies") };
        figure = figure.with(name, Mark::Line, (5..=100).map(wait).collect()).hue(*copies as usize - 1);
    }
    figure
}

/// Work under each policy.
#[must_use]
pub fn months(subtitle: &str, months: &[Month]) -> Figure {
    let percent = |value: fn(&Month) -> f64| months.iter().map(|month| value(month) * 100.0).collect();
    Figure::bars(
        "What the same power does under each policy",
        Bars {
            categories: months.iter().map(|month| month.policy.name().to_owned()).collect(),
            y: Axis::linear("share of the time (%)").to(100.0),
            groups: vec![
                ("work, of all nodes always on".to_owned(), percent(|month| month.work_share)),
                ("lost to moving data".to_owned(), percent(|month| month.moving_fraction)),
                ("stalled: some data out of reach".to_owned(), percent(|month| month.stalled_fraction)),
            ],
            stacked: false,
            line: None,
        },
    )
    .subtitle(subtitle)
}

/// Bytes lost per year against user data (DiskReduce, Fig. 3).
#[must_use]
pub fn loss_curves(inputs: &Inputs, schemes: &[Scheme], from: f64, to: f64) -> Figure {
    let title = if inputs.detection_s == 0.0 {
        "With instant detection larger systems lose less"
    } else {
        "Expected loss against the size of the system"
    };
    let detection = if inputs.detection_s == 0.0 {
        "instant detection".to_owned()
    } else {
        format!("{:.0} s to detect a failure", inputs.detection_s)
    };
    let mut figure = Figure::plane(title, Axis::log("user data").bytes(), Axis::log("bytes lost a year").bytes())
        .subtitle(format!(
            "{detection}; {:.1} % failures a year, {:.0} MB/s of repair for each disk",
            inputs.failures_per_year * 100.0,
            inputs.repair_bytes_per_s / 1e6
        ));
    for scheme in schemes {
        let point = |step: u32| {
            let user_bytes = from * (to / from).powf(f64::from(step) / 120.0);
            (user_bytes, loss(&Inputs { user_bytes, ..*inputs }, *scheme).bytes_lost_per_year)
        };
        figure = figure.with(scheme.to_string(), Mark::Line, (0..=120).map(point).collect());
    }
    figure
}

/// Check bytes by grouping, for some distributions.
#[must_use]
pub fn overheads(subtitle: &str, names: &[String], overheads: &[Vec<f64>]) -> Figure {
    let groups = Grouping::ALL
        .iter()
        .enumerate()
        .map(|(index, grouping)| (grouping.to_string(), overheads.iter().map(|of| of[index] * 100.0).collect()));
    Figure::bars(
        "Blocks must be grouped across files to save as much as the code promises",
        Bars {
            categories: names.to_vec(),
            y: Axis::linear("check bytes (% of data)"),
            groups: groups.collect(),
            stacked: false,
            line: None,
        },
    )
    .subtitle(subtitle)
}
