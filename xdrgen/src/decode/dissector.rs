//! Assignment of captured datagrams to TCP connections and RoCE hosts.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use super::{
    connection::Connection,
    memory::Owner,
    packet::Datagram,
    roce::{self, Roce},
    session::{Endpoint, Place, Port, Session, Transport},
};

/// The connections and the RoCE hosts of a capture.
#[derive(Debug, Default)]
pub(super) struct Dissector {
    connections: BTreeMap<[Endpoint; 2], Connection>,
    roce: Roce,
    /// RoCE hosts. The keys of their memory are unique within a host.
    hosts: HashMap<IpAddr, Owner>,
    owners: usize,
}

impl Dissector {
    fn owner(&mut self) -> Owner {
        self.owners += 1;
        Owner(self.owners)
    }

    pub(super) fn datagram(&mut self, datagram: &Datagram<'_>, place: Place, session: &mut Session) {
        match datagram.tcp {
            Some(fields) => {
                let from = Endpoint { address: datagram.from, port: Port::Tcp(datagram.ports.0) };
                let to = Endpoint { address: datagram.to, port: Port::Tcp(datagram.ports.1) };
                let side = usize::from(from > to);
                let ends = if side == 0 { [from, to] } else { [to, from] };
                let is_reused = self.connections.get(&ends).is_some_and(|known| known.is_reused_by(side, fields));
                if is_reused && let Some(mut old) = self.connections.remove(&ends) {
                    old.finish(place, session);
                }
                if !self.connections.contains_key(&ends) {
                    let owners = [self.owner(), self.owner()];
                    self.connections.insert(ends, Connection::new(ends, owners));
                }
                if let Some(connection) = self.connections.get_mut(&ends) {
                    connection.segment(side, fields, datagram.payload, datagram.missing, place, session);
                }
            }
            None if datagram.ports.1 == roce::PORT => {
                let (from, to) = (self.host(datagram.from), self.host(datagram.to));
                let Some(queue) = roce::queue(datagram.payload) else { return };
                let peers = (
                    Endpoint { address: datagram.from, port: Port::Unknown },
                    Endpoint { address: datagram.to, port: Port::Queue(queue) },
                );
                let place = Place { peers: Some(peers), from, to, transport: Transport::Roce, ..place };
                self.roce.packet((datagram.from, datagram.to), datagram.payload, datagram.missing, place, session);
            }
            None => {}
        }
    }

    fn host(&mut self, address: IpAddr) -> Owner {
        if let Some(owner) = self.hosts.get(&address) {
            return *owner;
        }
        let owner = self.owner();
        self.hosts.insert(address, owner);
        owner
    }

    pub(super) fn finish(&mut self, place: Place, session: &mut Session) {
        for connection in self.connections.values_mut() {
            connection.finish(place, session);
        }
        self.roce.finish(session);
        session.finish(place);
    }
}
