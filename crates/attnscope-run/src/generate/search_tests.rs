use super::*;

/// Gives the same logits at every step.
struct Fixed {
    logits: Vec<f32>,
    rows: usize,
    given: Vec<f32>,
}

impl Fixed {
    fn new(logits: &[f32]) -> Self {
        Self { logits: logits.to_vec(), rows: 1, given: Vec::new() }
    }
}

impl Decode for Fixed {
    fn advance(&mut self, tokens: &[Vec<u32>]) -> Result<&[f32], RunError> {
        assert_eq!(tokens.len(), self.rows);
        self.given = self.logits.repeat(self.rows);
        Ok(&self.given)
    }

    fn reorder(&mut self, rows: &[usize]) -> Result<(), RunError> {
        self.rows = rows.len();
        Ok(())
    }
}

/// Excludes every token after so many tokens.
struct Nothing(usize);

impl Rules for Nothing {
    fn apply(&self, _: usize, history: &[u32], scores: &mut [f32]) {
        if history.len() >= self.0 {
            scores.fill(f32::NEG_INFINITY);
        }
    }
}

fn search(beams: usize, rules: &dyn Rules) -> Search<'_> {
    let early_stopping = EarlyStopping::Never;
    Search { beams, length_penalty: 1.0, early_stopping, ends: &[0], max_length: 8, rules }
}

#[test]
fn where_no_token_is_left_the_step_is_said() {
    // The end is so unlikely that no beam takes it.
    let logits = [-50.0, 1.0, 0.5, 0.2];
    for after in [2, 4] {
        let rules = Nothing(after);
        let greedy = search(1, &rules).greedy(&mut Fixed::new(&logits), &[vec![3]]).unwrap_err();
        let beams = search(2, &rules).beams(&mut Fixed::new(&logits), &[3]).unwrap_err();
        for error in [greedy, beams] {
            assert!(matches!(error, RunError::NoToken { step } if step == after), "{after}: {error}");
        }
    }
    // A sentence that ended before is one.
    let ends = [3.0, 1.0, 0.5, 0.2];
    assert!(!search(2, &Nothing(3)).beams(&mut Fixed::new(&ends), &[3]).unwrap().is_empty());
}

#[test]
fn a_value_that_is_no_number_is_placed_in_the_sentence() {
    let logits = [0.0, 1.0, f32::NAN, 0.2];
    for error in [
        search(1, &()).greedy(&mut Fixed::new(&logits), &[vec![3, 1]]).unwrap_err(),
        search(2, &()).beams(&mut Fixed::new(&logits), &[3, 1]).unwrap_err(),
    ] {
        let RunError::NotANumber { at, .. } = error else { panic!("{error}") };
        assert_eq!(at, [0, 1, 2]);
    }
}
