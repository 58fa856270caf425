mod room;
mod room_threads;
