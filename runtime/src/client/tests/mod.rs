mod silence;
mod threads;
