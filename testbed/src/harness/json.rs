//! The result as one JSON object. All scenarios have its form in common: every sample, every bar, and the conditions
//! that the scenario reports.

use serde_json::{Map, Value, json};

use super::bar::{Bar, Weight};
use super::plan::Cell;
use super::record::{Record, Sample};

/// Renders a record as JSON, with the scenario's `conditions` as further fields.
pub fn json(record: &Record, conditions: Map<String, Value>) -> Value {
    let plan = &record.plan;
    let measurements = plan.measurements.iter().enumerate().map(|(measurement, measured)| {
        let cells = (0..plan.rivals.len()).map(|rival| Cell { measurement, rival });
        let rivals = cells.filter(|cell| plan.has(*cell)).map(|cell| of_cell(record, cell));
        let mut object = measured.more.clone();
        object.insert("name".into(), measured.name().into());
        object.insert("unit".into(), measured.unit.name.into());
        object.insert("rivals".into(), rivals.collect());
        Value::Object(object)
    });
    let mut object = conditions;
    object.insert("rounds".into(), plan.rounds.into());
    object.insert("rounds_min".into(), plan.rounds_min.into());
    object.insert("measurements".into(), measurements.collect());
    object.insert("bars".into(), plan.judged().map(|bar| of_bar(record, bar)).collect());
    Value::Object(object)
}

fn of_cell(record: &Record, cell: Cell) -> Value {
    let samples = record.rounds_of(cell).iter();
    json!({
        "rival": record.plan.rivals[cell.rival],
        "median": record.median(cell),
        "samples": samples.map(|(round, sample)| of_sample(*round, sample)).collect::<Vec<_>>(),
    })
}

fn of_sample(round: u32, sample: &Sample) -> Value {
    let mut object = sample.more.clone();
    object.insert("round".into(), (round + 1).into());
    object.insert("value".into(), sample.value.into());
    object.insert("counts".into(), sample.counts.into());
    object.insert("disturbed".into(), sample.disturbed.into());
    Value::Object(object)
}

fn of_bar(record: &Record, bar: &Bar) -> Value {
    let name = |cell: Cell| record.plan.measurements[cell.measurement].name();
    json!({
        "measurement": name(bar.ours),
        "rival": record.plan.rivals[bar.ours.rival],
        "against": bar.against.map(|cell| json!({ "measurement": name(cell), "rival": record.plan.rivals[cell.rival] })),
        "value": record.value(bar),
        "bar": bar.limit.json(),
        "decides": bar.weight == Weight::Must,
        "met": record.verdict(bar).map_or(Value::Null, super::bar::Verdict::json),
    })
}
