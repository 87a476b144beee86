//! What the report says of the order of memory accesses.

use crate::dma::bus::Lost;
use crate::dma::order::coverage::Row;
use crate::dma::order::log::Why;
use crate::dma::order::replay::Plan;
use crate::dma::order::{self, Illegal, Settings};
use crate::trace::RunSummary;
use crate::trace::report::{Order, OrderCheck, OrderLife, OrderReplay, Overtaking};

/// The policy in one line, as every output has it.
fn headline(settings: &Settings, plan: Option<&Plan>) -> String {
    let Settings { policy, illegal, seeds, .. } = settings;
    let seed = if *seeds > 1 { "seeds" } else { "seed" };
    let illegal = illegal.map(|mode| format!("ILLEGAL {}, ", mode.name())).unwrap_or_default();
    let repeated = match plan {
        Some(Plan::Replay(_)) => "repeated order of ",
        Some(Plan::Only(_)) => "chosen overtakes of ",
        None => "",
    };
    format!(
        "{illegal}{repeated}{policy}, {seed} {}, contract {}",
        settings.describe_seeds(),
        settings.describe_profile()
    )
}

fn reason(why: Why) -> &'static str {
    match why {
        Why::Due => "due",
        Why::Pressure => "pressure",
        Why::Needed => "forced",
        Why::Drained => "drained",
        Why::AtOnce => "at once",
        Why::Recorded => "recorded",
    }
}

fn overtaking(row: &Row) -> Overtaking {
    Overtaking {
        later: row.later.to_owned(),
        earlier: row.earlier.map(str::to_owned),
        same_stream: row.same_stream,
        count: row.count,
        met: row.met,
    }
}

/// What each life of the device came to.
fn lives(engine: &order::Order) -> Vec<OrderLife> {
    let (lives, violations) = (engine.lives(), engine.verdict().map_or(0, |verdict| verdict.violations));
    let ends = lives.iter().skip(1).map(|next| (next.issued, next.violations));
    let ends = ends.chain([(engine.counters().issued, violations)]);
    let lives = lives.iter().zip(ends).map(|(life, (issued, violations))| OrderLife {
        seed: life.seed,
        issued: issued - life.issued,
        violations: violations - life.violations,
    });
    lives.collect()
}

/// Adds what an engine did to a summary. What its checker found is a failure of our own, and so is an access that was
/// lost, unless the VMM truncated the memory under it.
pub(super) fn note(summary: &mut RunSummary, engine: &order::Order, lost: Lost) {
    let (settings, counters) = (engine.settings(), engine.counters());
    let rows = engine.coverage().rows(&settings.rules);
    let (overtaken, never): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.count > 0);
    let check = engine.verdict().map(|verdict| OrderCheck {
        legal: verdict.is_legal(),
        issued: verdict.issued,
        applied: verdict.applied,
        drains: verdict.drains,
        violations: verdict.violations,
        described: verdict.described.clone(),
    });
    if let Some(check) = check.as_ref().filter(|check| !check.legal) {
        let mode = settings.illegal.map(|mode| format!(" (illegal mode {})", mode.name())).unwrap_or_default();
        summary.internal_failure(format!("order: {} accesses not allowed{mode}", check.violations));
    }
    if lost.amiss > 0 {
        let mode = settings.illegal.map(|mode| format!(" (illegal mode {})", mode.name())).unwrap_or_default();
        summary.internal_failure(format!("order: {} delayed accesses lost{mode}", lost.amiss));
    }
    let applied = Why::ALL.iter().zip(counters.applied).filter(|(_, count)| *count > 0);
    summary.policy = headline(settings, engine.plan());
    summary.order = Some(Order {
        policy: settings.policy.to_string(),
        profile: settings.describe_profile(),
        seed: settings.seed,
        lives: lives(engine),
        illegal: settings.illegal.map(Illegal::name).map(str::to_owned),
        settings: settings.names().into_iter().map(|(knob, value)| (knob.to_owned(), value)).collect(),
        issued: counters.issued,
        applied: applied.map(|(why, count)| (reason(*why).to_owned(), count)).collect(),
        held: counters.held,
        tails: counters.tails,
        drains: counters.drains,
        discarded: counters.discarded,
        lost: lost.amiss + lost.torn,
        most_pending: counters.most_pending,
        most_bytes: counters.most_bytes,
        longest_us: counters.oldest,
        overtaken: overtaken.into_iter().map(overtaking).collect(),
        never: never.into_iter().map(overtaking).collect(),
        absent: engine.coverage().absent(&settings.rules).map(str::to_owned).collect(),
        replay: engine.replay().map(|replay| OrderReplay {
            diverged: replay.diverged(),
            remaining: replay.remaining(),
            beyond: replay.beyond(),
            cut: replay.cut().map(str::to_owned),
        }),
        log_cut: engine.log_cut().map(str::to_owned),
        check,
    });
}

#[cfg(test)]
mod tests {
    use crate::profile::Profile;
    use crate::testing::Rig;

    #[test]
    fn each_driver_that_initializes_the_device_has_the_next_seed() {
        let sets = ["order.policy=random", "order.seed=5", "order.seeds=2", "order.check=true"];
        let mut rig = Rig::new(Profile::with("connectx10-c2c", &sets).unwrap());
        for _ in 0..3 {
            rig.bring_up();
            rig.tear_down();
        }
        let summary = rig.function.summary();
        assert_eq!(summary.policy, "random, seeds 5..6, contract cx10-unordered");
        let order = summary.order.unwrap();
        assert_eq!(order.lives.iter().map(|life| life.seed).collect::<Vec<_>>(), [5, 6, 5]);
        assert!(order.lives.iter().all(|life| life.issued > 10 && life.violations == 0), "{:?}", order.lives);
        let rest: u64 = order.lives.iter().map(|life| life.issued).sum();
        assert!(rest < order.issued, "what came before the first initialization belongs to no life");
    }
}
