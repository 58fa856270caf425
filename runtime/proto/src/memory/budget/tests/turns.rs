//! Tests of memory that is taken without waiting, and of the order in which waiters get memory.

use super::*;

fn is_granted(turn: &mut MemoryTurn) -> bool {
    poll(turn).is_ready()
}

/// A connection can take memory up to an exact bound without waiting. It can take returned memory again.
#[test]
fn bounds_of_what_is_taken_without_waiting() {
    let budget = MemoryBudget::new(LIMIT);
    assert_eq!((budget.held(), budget.waiting()), (0, 0));
    let one = share(&budget, 1);
    for _ in 0..3 {
        // Three quarters of three quarters of 525 for a connection.
        let most = one.take_now(294).unwrap();
        assert!(one.take_now(38).is_none(), "the part for small amounts has 37");
        drop(most);
        assert!(one.take_now(295).is_none());
    }
    assert_eq!(budget.held(), 0);
    // All but the last byte is returned, and then that.
    let mut charge = one.take_now(10).unwrap();
    charge.shrink(9);
    assert_eq!((charge.bytes(), budget.held()), (9, 9));
    charge.shrink(9);
    charge.shrink(0);
    assert_eq!((charge.bytes(), budget.held()), (0, 0));
}

/// A connection gets a small amount at once from the part for small amounts while another connection waits for the main
/// part.
#[test]
fn small_amounts_do_not_wait() {
    let budget = MemoryBudget::new(LIMIT);
    let others = share(&budget, 9).overcommit(LIMIT);
    let (mut one, mut two) = (share(&budget, 1), share(&budget, 2));
    assert!(one.take(200).is_none() && one.waits());
    let small = two.take(25).unwrap();
    assert!(!two.waits() && budget.waiting() == 1);
    assert_eq!(budget.held(), LIMIT + 25);
    drop((small, others));
    assert!(one.is_called());
}

/// A connection gets all amounts that it waits for, one after the other. An amount that it gives up does not affect the
/// other amounts.
#[test]
fn several_amounts_of_a_connection() {
    let budget = MemoryBudget::new(LIMIT);
    let [all, kept] = fill(&budget);
    let account = budget.account(1);
    let mut turns: Vec<_> = (0..3).map(|_| account.take_results(500).unwrap()).collect();
    let mut neighbour = budget.account(1).take_results(400).unwrap();
    assert!(turns.iter_mut().all(|turn| !is_granted(turn)));
    assert!(!is_granted(&mut neighbour));
    assert_eq!(budget.waiting(), 4);
    drop(turns.remove(1));
    assert_eq!(budget.waiting(), 3);
    drop(all);
    let Poll::Ready(first) = poll(&mut turns[0]) else { panic!("{budget:?}") };
    assert!(!is_granted(&mut turns[1]) && !is_granted(&mut neighbour));
    drop(first);
    // The connection that holds nothing is next, then the first one again.
    let Poll::Ready(charge) = poll(&mut neighbour) else { panic!("{budget:?}") };
    assert!(!is_granted(&mut turns[1]));
    drop(charge);
    assert!(is_granted(&mut turns[1]));
    drop((turns, neighbour, account, kept));
    assert_clear(&budget);
}

/// A connection that gives up does not remove the turns of other connections of its host.
#[test]
fn a_neighbour_that_leaves_keeps_the_turns_of_others() {
    let budget = MemoryBudget::new(LIMIT);
    let all = share(&budget, 9).overcommit(LIMIT);
    let (mut one, mut two, mut three) = (share(&budget, 1), share(&budget, 1), share(&budget, 1));
    assert!(one.take(100).is_none() && two.take(100).is_none() && three.take(100).is_none());
    two.stop_waiting();
    three.stop_waiting();
    drop(all);
    assert!(one.is_called() && !two.waits() && budget.waiting() == 0);
}

/// The next connection of a host is one that holds nothing, however many amounts another connection waits for.
#[test]
fn quiet_connections_are_next() {
    let budget = MemoryBudget::new(LIMIT);
    let busy = budget.account(1);
    let mut first = busy.take_results(150).unwrap();
    let Poll::Ready(held) = poll(&mut first) else { panic!("{budget:?}") };
    let (rest, _kept) = (hold_results(&budget, 9, 500), hold_results(&budget, 8, 400));
    let mut turns: Vec<_> = (0..70).map(|_| busy.take_results(180).unwrap()).collect();
    assert!(turns.iter_mut().all(|turn| !is_granted(turn)));
    let mut quiet = budget.account(1).take_results(180).unwrap();
    assert!(!is_granted(&mut quiet));
    drop(rest);
    assert!(!is_granted(&mut turns[0]));
    let Poll::Ready(charge) = poll(&mut quiet) else { panic!("{budget:?}") };
    drop((charge, held));
    assert!(is_granted(&mut turns[0]));
}

/// A host may take any free memory as long as it then holds at most its share. A host that would exceed its share must
/// leave enough memory free. The share depends on the number of hosts that hold memory or wait for it.
#[test]
fn hosts_below_their_share_are_served() {
    // With two hosts, the share is a third of 525.
    for (bytes, is_served) in [(75, true), (76, false)] {
        let budget = MemoryBudget::new(LIMIT);
        let one = share(&budget, 1);
        let held = one.overcommit(100);
        let others = share(&budget, 2);
        let (_most, some) = (others.overcommit(340), others.overcommit(85));
        let mut waits = share(&budget, 1);
        assert!(waits.take(bytes).is_none());
        drop(some);
        assert_eq!(waits.is_called(), is_served, "{bytes}");
        drop(held);
    }
    // Hosts that hold one byte count, and those that hold nothing and do not wait do not.
    let budget = MemoryBudget::new(LIMIT);
    let active = |budget: &MemoryBudget| budget.change(|state, _| format!("{state:?}"));
    let one = share(&budget, 1);
    let byte = one.overcommit(1);
    assert!(active(&budget).contains("active: 1,"));
    let all = share(&budget, 2).overcommit(LIMIT);
    assert!(active(&budget).contains("active: 2,"));
    let mut three = share(&budget, 3);
    assert!(three.take(100).is_none());
    assert!(active(&budget).contains("active: 3,"));
    drop(byte);
    assert!(active(&budget).contains("active: 2,"));
    three.stop_waiting();
    drop(all);
    assert!(active(&budget).contains("active: 0,"));
}

/// Hosts above their share get memory in the order in which they wait, if they leave enough to others.
#[test]
fn moderate_hosts_are_served_in_their_order() {
    let budget = MemoryBudget::new(LIMIT);
    let (one, two) = (share(&budget, 1), share(&budget, 2));
    let _held = (one.overcommit(150), two.overcommit(150));
    let others = share(&budget, 3).overcommit(225);
    let (mut first, mut second) = (share(&budget, 1), share(&budget, 2));
    assert!(first.take(90).is_none() && second.take(90).is_none());
    drop(others);
    assert!(first.is_called() && !second.is_called());
}
