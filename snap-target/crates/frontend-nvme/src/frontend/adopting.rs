//! I/O queues that come from the desk.

use telemetry::EventKind;

use super::Frontend;
use crate::io_queue::{IoQueue, QueueSetup};
use crate::limits::CONNECTIONS_MAX;
use crate::message::{Adoption, Message};
use crate::meter::Meter;

impl Frontend {
    /// Takes an I/O queue for life, and answers its Connect.
    pub(super) fn adopt(&mut self, adoption: Adoption) {
        let Adoption {
            link,
            admitted,
            connect,
            counters,
            names,
            namespaces,
            copy_formats,
            host,
            limits,
        } = adoption;
        let (controller, id) = (admitted.controller, admitted.queue);
        let reactors = self.peers.len().max(1) as u64;
        let share = self.hosts.of(
            &names.subsystem,
            &names.host,
            limits.memory_per_host_bytes / reactors,
        );
        let made = link.join(&self.ring).map_err(|error| error.to_string());
        let made = made.and_then(|mut link| {
            link.established(&admitted);
            if let Some(connect) = connect {
                link.respond(connect, admitted.completion, 0);
            }
            let owner = link.owner_id();
            let meter = Meter::new(
                self.telemetry.clone(),
                names,
                self.time.clone(),
                link.slots_max(),
            );
            let setup = QueueSetup {
                controller,
                queue: id,
                counters,
                meter,
                namespaces,
                copy_formats,
                share,
                host,
                limits,
            };
            let queue = IoQueue::new(link, setup);
            queue.meter.note(EventKind::QueueOpened, 0);
            let full = |_| format!("it has {CONNECTIONS_MAX} already");
            Ok((owner, self.queues.insert(queue).map_err(full)?))
        });
        match made {
            Ok((owner, key)) => {
                tracing::info!(
                    cntlid = controller.0,
                    sqid = id.0,
                    reactor = self.reactor,
                    "queue connected"
                );
                self.telemetry.counters.connections.add(1);
                self.owners.insert(owner, key);
                self.by_controller.entry(controller).or_default().push(key);
                self.touched.push(key);
            }
            Err(why) => {
                tracing::error!(
                    cntlid = controller.0,
                    sqid = id.0,
                    why,
                    "this reactor cannot take another queue"
                );
                self.tell_desk(Message::QueueClosed(controller, id));
            }
        }
    }
}
