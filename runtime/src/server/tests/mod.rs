mod accept;
mod room;
mod room_threads;
mod shutdown_threads;
