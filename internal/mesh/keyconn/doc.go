// SPDX-License-Identifier: Apache-2.0

// Package keyconn opens and accepts connections between nodes for an exchange of keys (package keyexchange): TLS 1.3 by
// QUIC (RFC 9001), each a full handshake and one stream, on the socket that ESP in UDP has. It does not know who may
// connect (the TLS configuration does), does not choose paths, and does not exchange keys.
//
//	port, err := keyconn.Open(socket.Packets(), identity.Server(known), peers)
//	go port.Run(ctx, func(ctx context.Context, c *keyconn.Conn) { keyexchange.Respond(c, identity, life, states) })
//
//	c, err := port.Dial(ctx, to, local, identity.Client(pin))
//	tunnel, err := keyexchange.Initiate(c, identity, offer, states)
//	err = c.Close()
//
// What anybody on the network can make it do is bounded: connections in total and of one address, and the time of each.
// While several are there, one more has to come from where it says (Retry, RFC 9000 section 8.1.2), and half of them
// are for addresses that peers have. How many come one after the other is not bounded: each costs a handshake.
package keyconn
