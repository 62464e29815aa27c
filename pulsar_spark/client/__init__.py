"""The protocol on blocking sockets: connections, lookups, positions, readers."""
