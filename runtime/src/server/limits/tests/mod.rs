mod queue;
mod threads;
