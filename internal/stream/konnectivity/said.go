// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// trailerFault has the code of a refused dial, beside the text in DIAL_RSP. The reference's client does not read it.
const trailerFault = "tombolo-fault"

// askedOf is the dial that the caller of a stream asks for.
func askedOf(ctx context.Context, network, address string) (wire.Dial, error) {
	said, err := saidOf(ctx)
	d := wire.Dial{Network: network, Address: address, Trace: said.Trace, TraceState: said.State, Metadata: said.Pairs}
	if at, ok := callerOf(ctx); ok {
		at.Name(&d)
	}
	return d, err
}

// saidOf reads what a caller says about its dial, in the metadata of its stream: the headers of a CONNECT in small
// letters. kube-apiserver says nothing.
func saidOf(ctx context.Context) (reqmeta.Metadata, error) {
	header := map[string][]string{}
	for _, name := range saidHeaders() {
		header[name] = metadata.ValueFromIncomingContext(ctx, name)
	}
	said, err := reqmeta.Read(header)
	if err != nil {
		return said, fault.New(fault.CodeRequest, "the metadata of the request is refused").Because(err).
			Hint("send %s: key=value for each pair, percent-encoded", reqmeta.HeaderMetadata)
	}
	return said, nil
}

func saidHeaders() []string {
	return []string{reqmeta.HeaderMetadata, reqmeta.HeaderTraceparent, reqmeta.HeaderTracestate}
}

// saidNames are their names in HTTP/2.
func saidNames() (out []string) {
	for _, name := range saidHeaders() {
		out = append(out, strings.ToLower(name))
	}
	return out
}
