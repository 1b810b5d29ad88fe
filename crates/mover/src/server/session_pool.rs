//! Pool of FTP sessions that stay open between jobs.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use super::{Dial, ServerError, Session};

/// Idle sessions that later jobs at the same server can use. The pool avoids log-ins, which take
/// several round trips.
#[derive(Default)]
pub struct SessionPool(Mutex<VecDeque<IdleSession>>);

struct IdleSession {
    since: Instant,
    session: Session,
}

impl SessionPool {
    /// Takes a session from the pool, or opens a new session. If the server refuses another
    /// connection, the function closes the pool's idle sessions at that server and tries again.
    ///
    /// # Errors
    /// [`ServerError`] if the server cannot be reached or refuses the log-in.
    pub async fn open(&self, dial: &Dial) -> Result<Session, ServerError> {
        self.leave_old().await;
        while let Some(IdleSession { since, mut session }) = self.take(|it| *it == *dial) {
            if session.is_alive(since.elapsed() > CERTAIN_MAX).await {
                return Ok(session);
            }
        }
        match Session::open(dial).await {
            Err(ServerError::Full(_)) if self.leave_server(dial).await => Session::open(dial).await,
            opened => opened,
        }
    }

    /// Closes all idle sessions at a server. Returns whether there were any such sessions.
    async fn leave_server(&self, dial: &Dial) -> bool {
        let mut leaving = JoinSet::new();
        while let Some(idle) = self.take(|it| it.server == dial.server && it.route == dial.route) {
            leaving.spawn(idle.session.leave());
        }
        let had_any = !leaving.is_empty();
        leaving.join_all().await;
        had_any
    }

    /// Adds a session to the pool. If the server has not replied to all commands, closes the
    /// session instead.
    pub async fn keep(&self, mut session: Session) {
        if session.is_at_rest() {
            session.close_ports();
            let since = Instant::now();
            self.idle().push_back(IdleSession { since, session });
        } else {
            session.close().await;
        }
        self.leave_old().await;
    }

    /// Closes sessions that have been idle for too long, and the oldest sessions if the pool is too
    /// large.
    pub async fn leave_old(&self) {
        let is_old = |it: &IdleSession| it.since.elapsed() > IDLE_MAX;
        loop {
            // The lock is not held while a session is closed.
            let old = {
                let mut idle = self.idle();
                let has_one = idle.len() > POOLED_MAX || idle.front().is_some_and(is_old);
                has_one.then(|| idle.pop_front()).flatten()
            };
            match old {
                Some(old) => old.session.close().await,
                None => return,
            }
        }
    }

    /// Closes all sessions of the pool.
    pub async fn leave_all(&self) {
        let all = std::mem::take(&mut *self.idle());
        for idle in all {
            idle.session.close().await;
        }
    }

    /// Searches for sessions whose parameters satisfy `is_it`. Removes and returns the newest of
    /// them.
    fn take(&self, is_it: impl Fn(&Dial) -> bool) -> Option<IdleSession> {
        let mut idle = self.idle();
        let at = idle.iter().rposition(|it| is_it(&it.session.dial))?;
        idle.remove(at)
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<IdleSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SessionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionPool")
            .field(&self.idle().len())
            .finish()
    }
}

/// Idle time after which a session is checked with `NOOP` before use, because the server may have
/// disconnected.
const CERTAIN_MAX: Duration = Duration::from_secs(2);

/// Maximum idle time of a session in the pool. Most servers disconnect idle sessions only after
/// minutes.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// Maximum number of sessions in the pool.
const POOLED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use fake_ftp::{Behaviour, FakeServer};

    use super::*;

    fn start() -> (Dial, FakeServer) {
        let server = FakeServer::start(Behaviour::default());
        (Dial::for_tests(server.address()), server)
    }

    #[tokio::test]
    async fn of_too_many_sessions_the_oldest_ones_are_left() {
        let (dial, server) = start();
        let pool = SessionPool::default();
        for _ in 0..POOLED_MAX + 2 {
            pool.keep(Session::open(&dial).await.expect("a session"))
                .await;
        }
        assert_eq!(pool.idle().len(), POOLED_MAX);
        let mut ended = server.wait_for("two ends", |it| it.ended.len() >= 2);
        ended.ended.sort_unstable();
        assert_eq!(ended.ended, [0, 1]);
    }

    #[tokio::test]
    async fn a_session_without_work_for_long_is_left() {
        let (dial, server) = start();
        let pool = SessionPool::default();
        for _ in 0..2 {
            pool.keep(Session::open(&dial).await.expect("a session"))
                .await;
        }
        let long_ago = Instant::now().checked_sub(IDLE_MAX + Duration::from_secs(1));
        pool.idle()[0].since = long_ago.expect("the machine is up for longer");
        pool.leave_old().await;
        let ended = server.wait_for("an end", |it| !it.ended.is_empty());
        assert_eq!((pool.idle().len(), &ended.ended[..]), (1, &[0][..]));
    }

    #[tokio::test]
    async fn a_session_with_a_command_under_way_is_not_kept() {
        let (dial, server) = start();
        let pool = SessionPool::default();
        let mut busy = Session::open(&dial).await.expect("a session");
        busy.control.send("NOOP", b"").expect("room");
        pool.keep(busy).await;
        let ended = server.wait_for("an end", |it| !it.ended.is_empty());
        assert_eq!((pool.idle().len(), &ended.ended[..]), (0, &[0][..]));
    }
}
