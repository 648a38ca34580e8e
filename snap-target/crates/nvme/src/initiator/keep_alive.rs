//! The host's keep-alive timer (Base, "Keep Alive"): a command each half of the timeout, and a controller that does not
//! answer one within the timeout is given up.

use std::time::Duration;

use crate::Time;

/// When to send Keep Alive, and when the controller counts as gone.
#[derive(Clone, Debug)]
pub struct KeepAlive {
    timeout: Duration,
    send_at: Time,
    sent_at: Option<Time>,
}

/// What the timer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAliveStep {
    /// Nothing before that time.
    WaitUntil(Time),
    /// Send a Keep Alive now and call [`KeepAlive::sent`].
    Send,
    /// The controller has not answered within the timeout: close the association.
    Expired,
}

impl KeepAlive {
    /// Starts at the completion of Connect. `timeout` is the KATO of the Connect command, not zero.
    pub fn new(timeout: Duration, now: Time) -> KeepAlive {
        KeepAlive {
            timeout,
            send_at: now + timeout / 2,
            sent_at: None,
        }
    }

    /// What to do now.
    pub fn step(&self, now: Time) -> KeepAliveStep {
        match self.sent_at {
            Some(sent_at) if now >= sent_at + self.timeout => KeepAliveStep::Expired,
            Some(sent_at) => KeepAliveStep::WaitUntil(sent_at + self.timeout),
            None if now >= self.send_at => KeepAliveStep::Send,
            None => KeepAliveStep::WaitUntil(self.send_at),
        }
    }

    /// A Keep Alive was sent.
    pub fn sent(&mut self, now: Time) {
        self.sent_at = Some(now);
    }

    /// The Keep Alive was answered with success.
    pub fn answered(&mut self, now: Time) {
        // Counted from the sending, so that a slow answer does not stretch the interval beyond the timeout.
        let sent_at = self.sent_at.take().unwrap_or(now);
        self.send_at = sent_at + self.timeout / 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_each_half_timeout_and_expiry_without_an_answer() {
        let start = Time::ZERO;
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timer = KeepAlive::new(Duration::from_secs(10), start);
        assert_eq!(timer.step(at(4)), KeepAliveStep::WaitUntil(at(5)));
        assert_eq!(timer.step(at(5)), KeepAliveStep::Send);
        timer.sent(at(5));
        assert_eq!(timer.step(at(6)), KeepAliveStep::WaitUntil(at(15)));
        timer.answered(at(9));
        assert_eq!(timer.step(at(9)), KeepAliveStep::WaitUntil(at(10)));
        assert_eq!(timer.step(at(11)), KeepAliveStep::Send);
        timer.sent(at(11));
        assert_eq!(timer.step(at(20)), KeepAliveStep::WaitUntil(at(21)));
        assert_eq!(timer.step(at(21)), KeepAliveStep::Expired);
    }
}
