//! The workload of the counters service. Each worker adds to its own counters, and derives bounds of their values from
//! the replies. A value outside of its bounds shows that an addition was lost or executed twice.

use std::time::Duration;

use rpcrdma::{CallOptions, Channel, client::Reconnect};
use rpcrdma_examples::counters::protocol::{
    Addition, CounterName,
    counters_v1::{CountersV1Client, PROGRAM},
};

use crate::{
    ledger::Trouble,
    work::{CALL_TIMEOUT, Surroundings, Work},
};

/// Number of counters of a worker.
const COUNTERS: usize = 3;
/// Time limit of some calls. It is too short for a disturbed server.
const HASTY: Duration = Duration::from_millis(15);

/// The bounds of a counter's value. One worker makes all additions to the counter, each of 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counter {
    /// Number of additions that were certainly executed.
    low: u64,
    /// Number of additions that may have been executed, including those that certainly were.
    high: u64,
}

impl Counter {
    /// Records an acknowledged addition of 1. Returns an error if the sum shows that an addition was lost or executed
    /// twice.
    fn acknowledged(&mut self, sum: u64) -> Result<(), String> {
        let Self { low, high } = *self;
        self.high = high + 1;
        if sum <= low {
            return Err(format!("an addition returned {sum}, but there were {low} additions before it"));
        }
        self.low = sum;
        self.check(sum)
    }

    /// Records an addition of 1 whose outcome is not known.
    fn uncertain(&mut self) {
        self.high += 1;
    }

    /// Checks a value that was read. Returns an error if an addition was lost or executed twice.
    fn check(&self, value: u64) -> Result<(), String> {
        let Self { low, high } = *self;
        if value < low {
            return Err(format!("{} acknowledged additions are lost: {value} of {low}", low - value));
        }
        if value > high {
            return Err(format!("{} additions happened twice: {value} of {high}", value - high));
        }
        Ok(())
    }
}

/// A worker that adds to counters of its own.
#[derive(Debug)]
pub(crate) struct CounterWork {
    surroundings: Surroundings,
    channel: Channel,
    client: CountersV1Client,
    counters: [Counter; COUNTERS],
}

impl CounterWork {
    pub(crate) fn new(surroundings: Surroundings, url: &str) -> anyhow::Result<Self> {
        let pause = Duration::from_millis(20);
        let reconnect = Reconnect::OnDemand { min_backoff: pause, max_backoff: 25 * pause, retries: 1000 };
        let builder = surroundings.builder()?.deduplicated([PROGRAM]).reconnect(reconnect);
        let channel = builder.connect_lazy(url)?;
        let client = CountersV1Client::new(channel.clone());
        Ok(Self { surroundings, channel, client, counters: Default::default() })
    }

    fn name(&self, counter: usize) -> String {
        format!("soak-{}-{counter}", self.surroundings.id)
    }

    fn wrong(&self, counter: usize, what: String) -> Trouble {
        Trouble::Wrong(format!("counter {} at {}: {what}", self.name(counter), self.surroundings.progress.name))
    }

    async fn add(&mut self, counter: usize) -> Result<(), Trouble> {
        let timeout = if self.surroundings.random.u8(..16) == 0 { HASTY } else { CALL_TIMEOUT };
        let addition = Addition { name: self.name(counter).as_str().into(), amount: 1 };
        self.surroundings.ledger.called();
        match self.client.add_with(&addition, CallOptions::new().timeout(timeout)).await {
            Ok(sum) => {
                let acknowledged = self.counters[counter].acknowledged(sum);
                self.surroundings.ledger.acknowledged();
                acknowledged.map_err(|what| self.wrong(counter, what))
            }
            Err(error) => {
                if !error.is_retry_safe() {
                    self.counters[counter].uncertain();
                }
                Err(error.into())
            }
        }
    }
}

impl Work for CounterWork {
    fn surroundings(&mut self) -> &mut Surroundings {
        &mut self.surroundings
    }

    async fn step(&mut self) -> Result<(), Trouble> {
        let counter = self.surroundings.random.usize(..COUNTERS);
        if self.surroundings.random.u8(..4) == 0 { self.check(counter).await } else { self.add(counter).await }
    }

    fn effects(&self) -> usize {
        COUNTERS
    }

    async fn check(&mut self, counter: usize) -> Result<(), Trouble> {
        self.surroundings.ledger.called();
        let name: CounterName = self.name(counter).as_str().into();
        let value = self.client.value(&name).await?;
        self.counters[counter].check(value).map_err(|what| self.wrong(counter, what))?;
        self.surroundings.ledger.compared(8);
        Ok(())
    }

    fn regions(&self) -> u32 {
        self.channel.counters().exposed_regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_and_repeated_additions_are_noticed() {
        let mut counter = Counter::default();
        assert_eq!(counter.acknowledged(1), Ok(()));
        counter.uncertain();
        assert_eq!(counter, Counter { low: 1, high: 2 });
        assert!(counter.check(1).is_ok() && counter.check(2).is_ok());
        assert!(counter.check(0).unwrap_err().contains("lost"));
        assert!(counter.check(3).unwrap_err().contains("twice"));
        // The uncertain addition came first.
        assert_eq!(counter.acknowledged(3), Ok(()));
        assert!(counter.acknowledged(3).unwrap_err().contains("returned 3"));
        assert!(counter.acknowledged(9).unwrap_err().contains("twice"));
    }
}
