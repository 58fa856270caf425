mod cache;
mod threads;
