//! What an operator is told of controllers.

use nvme::controller::Controller;

use super::Desk;
use crate::admin::ControllerReport;

impl Desk {
    /// Every controller as it stands, by CNTLID.
    pub(super) fn controllers(&self) -> Vec<ControllerReport> {
        let all = self.registry.controllers();
        all.map(|controller| self.report(controller)).collect()
    }

    fn report(&self, controller: &Controller) -> ControllerReport {
        let id = controller.id();
        let admin_queue = self.admin_queues.get(&id);
        let visitor = admin_queue.and_then(|key| self.visitors.get(*key));
        // A PCIe function has no address.
        let over_fabric = visitor.filter(|visitor| visitor.link.transport().is_fabric());
        ControllerReport {
            id,
            subsystem: controller.subsystem().map(|it| it.nqn.clone()),
            host: controller.host().clone(),
            host_id: *controller.host_id(),
            transport: visitor.map(|visitor| visitor.link.transport()),
            peer: over_fabric.map(|visitor| visitor.link.peer()),
            local: over_fabric.map(|visitor| visitor.link.local()),
            port_id: visitor.map(|visitor| visitor.port_id),
            io_queues: self
                .registry
                .io_queues(id)
                .iter()
                .map(|queue| queue.0)
                .collect(),
            kato_ms: controller.kato_ms(),
            connected_at: visitor.and_then(|visitor| visitor.connected_at),
            ready: controller.ready(),
        }
    }
}
