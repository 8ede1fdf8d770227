// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"net/http"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// asking is what a caller asks for over HTTP, and what it says about that.
type asking struct {
	ping            bool // nothing: whether anybody answers
	network, target string
	said            reqmeta.Metadata
}

// readRequest reads what the caller says in the headers.
func readRequest(target string, header http.Header) (asking, error) {
	said, err := reqmeta.Read(header)
	if err != nil {
		return asking{}, fault.New(fault.CodeRequest, "the metadata of the request is refused").Because(err).
			Hint("send %s: key=value for each pair, percent-encoded", reqmeta.HeaderMetadata)
	}
	q := asking{network: cmp.Or(header.Get(admin.HeaderNetwork), wire.NetworkTCP), target: target, said: said}
	switch q.network {
	case wire.NetworkTCP, wire.NetworkUDP, wire.NetworkEcho:
		return q, nil
	}
	return asking{}, fault.New(fault.CodeRequest, "the network of the request is unknown").
		Whyf("%s is none of tcp, udp and icmp", admin.HeaderNetwork)
}

func (q asking) dial() wire.Dial {
	return wire.Dial{
		Network: q.network, Address: q.target, Trace: q.said.Trace, TraceState: q.said.State, Metadata: q.said.Pairs,
	}
}
