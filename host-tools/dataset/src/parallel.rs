//! Work on many files by a few threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// `work` on each of `0..count`, at most `threads` at a time; the results in their order, or the error of the first number that failed.
///
/// # Errors
/// What `work` says. Work that was begun is finished, no other is begun.
pub(crate) fn each<T: Send, E: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new((Vec::with_capacity(count), None::<(usize, E)>));
    let run = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let result = work(index);
            let Ok(mut done) = done.lock() else { return };
            match result {
                Ok(value) => done.0.push((index, value)),
                Err(error) => {
                    next.store(count, Ordering::Relaxed);
                    if done.1.as_ref().is_none_or(|(before, _)| index < *before) {
                        done.1 = Some((index, error));
                    }
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            scope.spawn(run);
        }
        run();
    });
    let (mut values, error) = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some((_, error)) = error {
        return Err(error);
    }
    values.sort_unstable_by_key(|(index, _)| *index);
    Ok(values.into_iter().map(|(_, value)| value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_their_order_and_the_first_error_wins() {
        let squares = each(1000, 4, |n| Ok::<_, ()>(n * n)).unwrap();
        assert!(
            squares
                .iter()
                .enumerate()
                .all(|(n, square)| *square == n * n)
        );
        let failed = each(1000, 1, |n| if n % 300 == 299 { Err(n) } else { Ok(n) });
        assert_eq!(failed.unwrap_err(), 299);
        assert_eq!(each(0, 4, |_| Ok::<(), ()>(())).unwrap(), []);
    }
}
