//! A picture of a run, as SVG: how the latencies are distributed, and the bandwidth over time. A line for each job and direction.

use std::fmt::{self, Write};

use crate::report::rates;
use crate::run::JobReport;
use crate::spec::Direction;
use crate::units;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 800.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 930.0;
/// Colours that are told apart with any eyes (Okabe and Ito).
const COLOURS: [&str; 7] = [
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000",
];
/// Lines after these would hide each other.
const LINES_MAX: usize = 14;

/// One line.
struct Line {
    name: String,
    colour: &'static str,
    dashed: bool,
    points: Vec<(f64, f64)>,
}

/// An axis: what its ends mean.
#[derive(Clone, Copy)]
struct Axis {
    min: f64,
    max: f64,
    /// Where its ends are in the picture.
    from: f64,
    to: f64,
}

impl Axis {
    fn place(self, value: f64) -> f64 {
        let share = (value - self.min) / (self.max - self.min).max(f64::MIN_POSITIVE);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }
}

/// The picture.
pub fn svg(jobs: &[JobReport]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_svg(&mut text, jobs);
    text
}

fn write_svg(text: &mut String, jobs: &[JobReport]) -> fmt::Result {
    writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">"
    )?;
    writeln!(
        text,
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    )?;
    let latencies = lines(jobs, latency_points);
    let bandwidths = lines(jobs, bandwidth_points);
    write_latencies(text, &latencies)?;
    write_bandwidths(text, &bandwidths)?;
    writeln!(text, "</svg>")
}

fn lines(
    jobs: &[JobReport],
    points: impl Fn(&JobReport, Direction) -> Vec<(f64, f64)>,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for job in jobs {
        for direction in Direction::ALL {
            if job.stats.direction(direction).ios == 0 || lines.len() == LINES_MAX {
                continue;
            }
            lines.push(Line {
                name: format!("{} {}", job.spec.name, direction.name()),
                colour: COLOURS
                    .get(lines.len() % COLOURS.len())
                    .copied()
                    .unwrap_or("black"),
                dashed: lines.len() >= COLOURS.len(),
                points: points(job, direction),
            });
        }
    }
    lines
}

/// The decimal logarithm of a latency, and the share of commands that it suffices for.
fn latency_points(job: &JobReport, direction: Direction) -> Vec<(f64, f64)> {
    let histogram = &job.stats.direction(direction).lat;
    let total = histogram.total().max(1) as f64;
    let mut seen = 0;
    let mut points = vec![((histogram.min_ns().max(1) as f64).log10(), 0.0)];
    for (ns, count) in histogram.buckets() {
        seen += count;
        points.push(((ns.max(1) as f64).log10(), 100.0 * seen as f64 / total));
    }
    points
}

/// Seconds, and bytes a second.
fn bandwidth_points(job: &JobReport, direction: Direction) -> Vec<(f64, f64)> {
    let at = direction as usize;
    let samples = &job.stats.samples;
    // Not more points than the picture has room for.
    let step = samples.len().div_ceil(400).max(1);
    rates(samples, step, |sample| {
        sample.bytes.get(at).copied().unwrap_or(0)
    })
    .collect()
}

fn write_latencies(text: &mut String, lines: &[Line]) -> fmt::Result {
    let values = || {
        lines
            .iter()
            .flat_map(|line| line.points.iter().map(|point| point.0))
    };
    let x = Axis {
        min: values().fold(f64::INFINITY, f64::min).min(9.0).floor(),
        max: values().fold(0.0, f64::max).ceil().max(1.0),
        from: LEFT,
        to: RIGHT,
    };
    let y = Axis {
        min: 0.0,
        max: 100.0,
        from: 370.0,
        to: 50.0,
    };
    write_frame(
        text,
        x,
        y,
        "Latency (submission and completion): share of commands within",
    )?;
    let mut decade = x.min;
    while decade <= x.max {
        write_x(text, x.place(decade), y, &units::nanos(10f64.powf(decade)))?;
        for digit in 2..10 {
            let at = decade + f64::from(digit).log10();
            if at < x.max {
                write_grid(text, x.place(at), y.from, x.place(at), y.to, "#f0f0f0")?;
            }
        }
        decade += 1.0;
    }
    for share in [0.0, 25.0, 50.0, 75.0, 90.0, 99.0] {
        write_y(text, y.place(share), x, &format!("{share} %"))?;
    }
    write_lines(text, lines, x, y)?;
    write_legend(text, lines, LEFT + 14.0, 72.0)
}

fn write_bandwidths(text: &mut String, lines: &[Line]) -> fmt::Result {
    let points = || lines.iter().flat_map(|line| &line.points);
    let top = points().map(|point| point.1).fold(0.0, f64::max);
    let step_y = round_step(top / 5.0, 1024.0);
    let end = points().map(|point| point.0).fold(0.0, f64::max);
    let step_x = round_step(end / 10.0, 1000.0);
    let x = Axis {
        min: 0.0,
        max: end.max(step_x),
        from: LEFT,
        to: RIGHT,
    };
    let y = Axis {
        min: 0.0,
        max: step_y * (top / step_y).ceil().max(1.0),
        from: 750.0,
        to: 450.0,
    };
    write_frame(text, x, y, "Bandwidth over time (seconds)")?;
    let mut at = 0.0;
    while at <= x.max * 1.000_001 {
        write_x(
            text,
            x.place(at),
            y,
            &format!("{}", (at * 1e6).round() / 1e6),
        )?;
        at += step_x;
    }
    let mut at = 0.0;
    while at <= y.max * 1.000_001 {
        write_y(text, y.place(at), x, &format!("{}/s", units::bytes(at)))?;
        at += step_y;
    }
    write_lines(text, lines, x, y)
}

/// 1, 2 or 5 times a power of ten, of units that are `unit` apart; never below `least`.
fn round_step(least: f64, unit: f64) -> f64 {
    let mut scale = 1.0;
    while least / scale >= unit && unit > 1000.0 {
        scale *= unit;
    }
    let power = 10f64.powf((least / scale).max(1e-6).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step * scale >= least)
        .unwrap_or(power * 10.0);
    step * scale
}

fn write_frame(text: &mut String, x: Axis, y: Axis, title: &str) -> fmt::Result {
    writeln!(
        text,
        "<text x=\"{}\" y=\"{}\" font-size=\"16\">{title}</text>",
        x.from,
        y.to - 18.0
    )?;
    writeln!(
        text,
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>",
        x.from,
        y.to,
        x.to - x.from,
        y.from - y.to
    )
}

fn write_grid(text: &mut String, x1: f64, y1: f64, x2: f64, y2: f64, colour: &str) -> fmt::Result {
    writeln!(
        text,
        "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"{colour}\"/>"
    )
}

fn write_x(text: &mut String, at: f64, y: Axis, label: &str) -> fmt::Result {
    write_grid(text, at, y.from, at, y.to, "#ddd")?;
    writeln!(
        text,
        "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
        y.from + 18.0
    )
}

fn write_y(text: &mut String, at: f64, x: Axis, label: &str) -> fmt::Result {
    write_grid(text, x.from, at, x.to, at, "#ddd")?;
    writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
        x.from - 8.0,
        at + 4.5
    )
}

fn write_lines(text: &mut String, lines: &[Line], x: Axis, y: Axis) -> fmt::Result {
    for line in lines {
        let dashes = if line.dashed {
            " stroke-dasharray=\"6 4\""
        } else {
            ""
        };
        write!(
            text,
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{dashes} points=\"",
            line.colour
        )?;
        for (at, value) in &line.points {
            write!(text, "{:.1},{:.1} ", x.place(*at), y.place(*value))?;
        }
        writeln!(text, "\"/>")?;
    }
    Ok(())
}

fn write_legend(text: &mut String, lines: &[Line], x: f64, y: f64) -> fmt::Result {
    for (at, line) in lines.iter().enumerate() {
        let y = y + 18.0 * at as f64;
        let dashes = if line.dashed {
            " stroke-dasharray=\"6 4\""
        } else {
            ""
        };
        writeln!(
            text,
            "<path d=\"M{x:.1} {y:.1}h24\" stroke=\"{}\" stroke-width=\"3\"{dashes}/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            line.colour,
            x + 32.0,
            y + 4.5,
            escaped(&line.name)
        )?;
    }
    Ok(())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::JobSpec;
    use crate::stats::{Sample, Stats};

    #[test]
    fn each_direction_is_a_line_that_ends_at_everything() {
        let mut stats = Stats::default();
        let read = stats.direction_mut(Direction::Read);
        read.ios = 3;
        [10_000, 20_000, 40_000]
            .into_iter()
            .for_each(|ns| read.lat.add(ns));
        stats.samples = (1..=4)
            .map(|at| Sample {
                at_ns: at * 100_000_000,
                bytes: [at * 1000, 0, 0],
                ios: [at, 0, 0],
            })
            .collect();
        let job = JobReport {
            spec: JobSpec::new("a<b"),
            target: String::new(),
            group: 0,
            jobs: 1,
            stats,
            error: None,
        };
        let shares: Vec<f64> = latency_points(&job, Direction::Read)
            .iter()
            .map(|point| point.1.round())
            .collect();
        assert_eq!(shares, [0.0, 33.0, 67.0, 100.0]);
        let rates = bandwidth_points(&job, Direction::Read);
        assert!(rates.iter().all(|(_, rate)| (rate - 10_000.0).abs() < 1e-6) && rates.len() == 4);
        let picture = svg(&[job]);
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert!(
            picture.contains("a&lt;b read") && !picture.contains("NaN") && !picture.contains("inf")
        );
        assert!(!svg(&[]).contains("NaN"));
    }

    #[test]
    fn steps_are_round() {
        for (least, unit, step) in [
            (0.13, 1000.0, 0.2),
            (3.0, 1000.0, 5.0),
            (900.0, 1024.0, 1000.0),
            (3000.0, 1024.0, 5120.0),
        ] {
            assert!(
                (round_step(least, unit) - step).abs() < step * 1e-9,
                "{least}"
            );
        }
    }
}
