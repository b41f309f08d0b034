//! Threads that wait for the Ethernet port: the one that leads sleeps on the port itself, the others behind it.

use std::sync::Arc;

use crate::waiter::Waiter;

/// The threads of the program that sleep.
#[derive(Default)]
pub(crate) struct Sleepers {
    leader: Option<Arc<Waiter>>,
    followers: Vec<Arc<Waiter>>,
}

impl Sleepers {
    /// A thread is about to sleep. Whether it leads.
    pub(crate) fn lie_down(&mut self, waiter: &Arc<Waiter>) -> bool {
        let leads = self.leader.is_none();
        if leads {
            self.leader = Some(waiter.clone());
        } else {
            self.followers.push(waiter.clone());
        }
        leads
    }

    /// A thread woke. If it led, another one is woken to lead.
    pub(crate) fn get_up(&mut self, waiter: &Arc<Waiter>, leads: bool) {
        if leads {
            self.leader = None;
            if let Some(next) = self.followers.first() {
                next.wake();
            }
        } else {
            self.followers.retain(|one| !Arc::ptr_eq(one, waiter));
        }
    }
}
