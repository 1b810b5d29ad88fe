use super::*;

fn plot(scale: Scale, points: &[(f64, f64)]) -> Plot {
    Plot {
        title: "goodput <by> RTT".to_owned(),
        x: Axis::new("RTT, ms", scale),
        y: Axis::linear("Mbit/s"),
        series: vec![Series {
            label: "ours".to_owned(),
            points: points.to_vec(),
            mark: Mark::LineAndPoints,
        }],
    }
}

#[test]
fn a_page_gets_one_element_in_its_own_colours() {
    let svg = plot(Scale::Linear, &[(0.0, 1.0), (200.0, 300.0)]).svg();
    assert!(
        svg.starts_with("<svg role=\"img\" aria-label=\"goodput &lt;by&gt; RTT\""),
        "{svg}"
    );
    assert!(
        ["currentColor", "\"Canvas\""]
            .iter()
            .all(|colour| svg.contains(colour))
            && !["#010203", "#040506"]
                .iter()
                .any(|colour| svg.contains(colour)),
        "{svg}"
    );
    for text in ["ours", "RTT, ms", "Mbit/s", "#0072B2"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    assert!(svg.trim_end().ends_with("</svg>"));
}

#[test]
fn what_a_logarithm_cannot_show_is_left_out() {
    let plot = plot(Scale::Logarithmic, &[(0.0, 1.0), (1.0, 2.0), (100.0, 3.0)]);
    assert_eq!(plot.bounds(&plot.x, |p| p.0), Some((0.0, 2.0)));
    assert_eq!(plot.svg().matches("<circle").count(), 2);
}

#[test]
fn nothing_to_show_is_said() {
    let empty = plot(Scale::Linear, &[]);
    assert!(empty.svg().contains("no values"));
    assert!(empty.text(40, 10).contains("no values"));
    assert!(
        plot(Scale::Linear, &[(f64::NAN, 1.0)])
            .svg()
            .contains("no values")
    );
}

#[test]
fn a_terminal_shows_where_the_points_lie() {
    let text = plot(Scale::Linear, &[(0.0, 0.0), (10.0, 10.0)]).text(11, 11);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[1].ends_with('*') && lines[1].contains("10 |"),
        "{text}"
    );
    assert!(lines[11].contains("|*"), "{text}");
    assert!(text.contains("* ours"), "{text}");
}

#[test]
fn a_distribution_is_a_plot_of_shares() {
    let samples = [("direct".to_owned(), vec![1.0, 2.0, 3.0])];
    let plot = Plot::cdf("times", Axis::logarithmic("s"), &samples);
    assert_eq!(plot.series[0].points.last(), Some(&(3.0, 1.0)));
}

#[test]
fn axes_are_labelled_in_few_digits() {
    for (value, label) in [
        (0.0, "0"),
        (0.25, "0.25"),
        (1.5, "1.5"),
        (300.0, "300"),
        (2.5e7, "2e7"),
    ] {
        assert_eq!(Scale::Linear.label(value), label);
    }
}
