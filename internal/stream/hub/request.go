// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net/http"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// asking is what a caller asks for over HTTP, and what it says about that.
type asking struct {
	target string
	said   reqmeta.Metadata
}

// readRequest reads what the caller says in the headers.
func readRequest(target string, header http.Header) (asking, error) {
	said, err := reqmeta.Read(header)
	if err != nil {
		return asking{}, fault.New(fault.CodeRequest, "the metadata of the request is refused").Because(err).
			Hint("send %s: key=value for each pair, percent-encoded", reqmeta.HeaderMetadata)
	}
	return asking{target, said}, nil
}

func (q asking) dial() wire.Dial {
	return wire.Dial{
		Network: "tcp", Address: q.target, Trace: q.said.Trace, TraceState: q.said.State, Metadata: q.said.Pairs,
	}
}
