//! The learning rate of a step.

use crate::recipe::Schedule;

impl Schedule {
    /// The share of the largest learning rate that a step has; steps are counted from 1.
    pub fn share(&self, step: u64) -> f64 {
        let step = step.max(1) as f64;
        match *self {
            Self::Constant => 1.0,
            Self::LinearWarmUp { warm_up } => (step / warm_up as f64).min(1.0),
            Self::InverseSquareRoot { warm_up } => {
                let warm_up = warm_up as f64;
                (step / warm_up).min((warm_up / step).sqrt())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_rise_in_a_line_and_fall_with_the_root() {
        let shares = |schedule: Schedule| [1, 5, 10, 40].map(|step| schedule.share(step));
        assert_eq!(shares(Schedule::Constant), [1.0; 4]);
        assert_eq!(shares(Schedule::LinearWarmUp { warm_up: 10 }), [0.1, 0.5, 1.0, 1.0]);
        assert_eq!(shares(Schedule::InverseSquareRoot { warm_up: 10 }), [0.1, 0.5, 1.0, 0.5]);
    }
}
