#![allow(clippy::unwrap_used)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    driver::DriverPort,
    security::HostAddr,
    server::room::{ConnectionRoom, NoRoom, RoomPermit},
};

fn host(number: u8) -> HostAddr {
    HostAddr::of(([10, 0, 0, number], 1).into())
}

/// Admits a connection whose set-up waits for the peer.
fn silent(room: &Arc<ConnectionRoom>, number: u8) -> Result<RoomPermit, NoRoom> {
    let permit = room.enter(host(number))?;
    permit.place().is_set_up_by(tokio::spawn(std::future::pending::<()>()).abort_handle());
    Ok(permit)
}

/// One host that takes all room does not keep other hosts out, and loses the connection that has been silent for
/// longest.
#[tokio::test]
async fn the_host_with_the_most_connections_makes_room() {
    let room = ConnectionRoom::new(10, usize::MAX);
    let mut flood: Vec<_> = (0..10).map(|_| silent(&room, 1).unwrap()).collect();
    assert_eq!(silent(&room, 1).err(), Some(NoRoom::Server(10)), "its own connections are not idle for long");
    let others: Vec<_> = (2..=5).map(|number| silent(&room, number).unwrap()).collect();
    assert_eq!(flood.iter().map(RoomPermit::stays).collect::<Vec<_>>(), [[false; 4].as_slice(), &[true; 6]].concat());
    // The flood does not get the room back.
    assert_eq!(silent(&room, 1).err(), Some(NoRoom::Server(10)));
    // Shares get equal, and then nobody makes room any more.
    let second: Vec<_> = (0..10).map_while(|_| silent(&room, 2).ok()).collect();
    assert_eq!(second.len(), 2, "3 of host 2, 4 of host 1");
    assert!(others.iter().chain(&second).all(RoomPermit::stays));
    assert_eq!(flood.iter().filter(|permit| permit.stays()).count(), 4);
    flood.clear();
    drop((others, second));
    assert!(room.is_empty());
}

#[tokio::test]
async fn a_host_has_a_limit() {
    let room = ConnectionRoom::new(10, 3);
    let own: Vec<_> = (0..3).map(|_| silent(&room, 1).unwrap()).collect();
    assert_eq!(silent(&room, 1).err(), Some(NoRoom::Host(3)));
    assert!(silent(&room, 2).is_ok());
    drop(own);
    assert!(silent(&room, 1).is_ok());
}

/// Connections in use stay, and so do connections whose set-up does not wait for the peer.
#[tokio::test]
async fn connections_in_use_stay() {
    let room = ConnectionRoom::new(3, usize::MAX);
    let mut accepted: Vec<_> = (0..3).map(|_| room.enter(host(1)).unwrap()).collect();
    assert_eq!(silent(&room, 2).err(), Some(NoRoom::Server(3)));
    let port = Arc::new(DriverPort::new(1));
    accepted[1].opened(&port);
    assert_eq!(silent(&room, 2).err(), Some(NoRoom::Server(3)), "a call is in flight");
    port.publish_idle(Some(Instant::now()));
    let other = silent(&room, 2).unwrap();
    assert_eq!((accepted[0].stays(), accepted[1].stays(), accepted[2].stays()), (true, false, true));
    // A connection that leaves is no longer recorded as open.
    accepted[1].opened(&port);
    assert!(!accepted[1].stays());
    accepted.truncate(1);
    drop(other);
    assert_eq!(room.counts(), (1, 0));
}

/// The number of connections that had to leave and are not closed yet is bounded.
#[tokio::test]
async fn few_connections_leave_at_a_time() {
    let room = ConnectionRoom::new(100, usize::MAX);
    let flood: Vec<_> = (0..100).map(|_| silent(&room, 1).unwrap()).collect();
    let others: Vec<_> = (2..200).map_while(|number| silent(&room, number).ok()).collect();
    assert_eq!((others.len(), room.counts().1), (16, 16));
    drop(flood);
    assert_eq!(room.counts(), (16, 0));
}

/// In a large room, up to an eighth of the connections may be leaving at a time.
#[tokio::test]
async fn an_eighth_may_leave_at_a_time() {
    let room = ConnectionRoom::new(160, usize::MAX);
    let _flood: Vec<_> = (0..160).map(|_| silent(&room, 1).unwrap()).collect();
    let others: Vec<_> = (2..200).map_while(|number| silent(&room, number).ok()).collect();
    assert_eq!((others.len(), room.counts()), (20, (160, 20)));
}

/// After a minute without use, a connection also makes room for another connection of its own host, both at the limit
/// of the server and at the limit of the host.
#[tokio::test(start_paused = true)]
async fn connections_that_are_idle_for_long_leave() {
    for (max, max_per_host, error) in [(2, usize::MAX, NoRoom::Server(2)), (10, 2, NoRoom::Host(2))] {
        let room = ConnectionRoom::new(max, max_per_host);
        let first = silent(&room, 1).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = silent(&room, 1).unwrap();
        tokio::time::advance(Duration::from_millis(58_999)).await;
        assert_eq!(silent(&room, 1).err(), Some(error));
        assert!(first.stays() && second.stays());
        tokio::time::advance(Duration::from_millis(1)).await;
        let third = silent(&room, 1).unwrap();
        assert_eq!((first.stays(), second.stays(), third.stays()), (false, true, true));
        assert_eq!(silent(&room, 1).err(), Some(error), "the second has been idle for 59 s");
        drop((first, second, third));
        assert!(room.is_empty());
    }
}

/// Whenever no file descriptor is free, an idle connection of the host with the most connections leaves, until no
/// connection is left.
#[tokio::test]
async fn descriptors_are_freed() {
    // Hosts are not listed in any order.
    for _ in 0..20 {
        let room = ConnectionRoom::new(10, usize::MAX);
        let one = silent(&room, 1).unwrap();
        let two = [silent(&room, 2).unwrap(), silent(&room, 2).unwrap()];
        room.free_descriptor();
        assert_eq!((one.stays(), two[0].stays(), two[1].stays()), (true, false, true));
        for expected in [(1, 2), (0, 3), (0, 3)] {
            room.free_descriptor();
            assert_eq!(room.counts(), expected);
        }
        drop((one, two));
        assert!(room.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn warnings_are_rare() {
    let room = ConnectionRoom::new(1, 1);
    for _ in 0..2 {
        assert!(room.should_warn() && !room.should_warn());
        tokio::time::advance(Duration::from_millis(59_999)).await;
        assert!(!room.should_warn());
        tokio::time::advance(Duration::from_millis(1)).await;
    }
}
