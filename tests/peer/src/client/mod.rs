//! Cases for clients: the peer plays the server.
