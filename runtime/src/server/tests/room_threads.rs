//! Tests of connections that make room for others, in random interleavings chosen by `shuttle`.

// The room is compiled twice, and parts of it are used only in one of the two places.
#![allow(clippy::duplicate_mod, clippy::unwrap_used, dead_code)]

#[path = "../room.rs"]
mod room;

use std::sync::Arc;

use shuttle::thread::{self, JoinHandle};
use tokio::{task::AbortHandle, time::Instant};

use self::room::{ConnectionRoom, RoomPermit};
use crate::{
    driver::{CommandQueue, DriverCommand, DriverPort},
    security::HostAddr,
    sync::model::{self as sync, check, enter_runtime},
};

/// Returns `true` if the connection was told to disconnect.
fn is_disconnected(port: &DriverPort) -> bool {
    let mut commands = CommandQueue::default();
    port.take(&mut commands);
    std::iter::from_fn(|| commands.pop()).any(|command| matches!(command, DriverCommand::Disconnect))
}

/// Sets a connection up, makes it idle, and ends it. Like a task that is about to end, the set-up cannot be aborted
/// here.
fn set_up(permit: RoomPermit) {
    let port = Arc::new(DriverPort::new(1));
    port.publish_idle(Some(Instant::now().into_std()));
    permit.opened(&port);
    thread::yield_now();
    let stays = permit.stays();
    assert!(stays || is_disconnected(&port), "a connection that has to leave is open");
    drop(permit);
}

/// Accepts a connection of a host in a new thread, which returns `true` if there was room.
fn accepts(room: &Arc<ConnectionRoom>, host: u8, task: &AbortHandle) -> JoinHandle<bool> {
    let (room, task) = (Arc::clone(room), task.clone());
    thread::spawn(move || {
        let Ok(permit) = room.enter(HostAddr::of(([10, 0, 0, host], 1).into())) else { return false };
        let place = permit.place();
        let setting_up = thread::spawn(move || set_up(permit));
        place.is_set_up_by(task);
        setting_up.join().unwrap();
        true
    })
}

/// A connection that has to leave is told to disconnect, whether it is being set up, is open, or ends by itself.
#[test]
fn connections_that_have_to_leave_are_closed() {
    let _entered = enter_runtime();
    let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
    check(move || {
        let room = ConnectionRoom::new(2, usize::MAX);
        let accepted = [1, 1, 2].map(|host| accepts(&room, host, &task));
        let accepted = accepted.map(|accepted| accepted.join().unwrap());
        assert!(accepted.iter().filter(|is_accepted| **is_accepted).count() >= 2);
        assert!(room.is_empty());
    });
}
