// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// TestRefusedBy tells a server that refuses an agent from one that is not there.
func TestRefusedBy(t *testing.T) {
	full := fault.New(fault.CodeLimit, "the server takes no more agents").Hint("wait")
	for name, c := range map[string]struct {
		err  error
		want fault.Code // empty: it has not refused
		next string
	}{
		"a session":                        {fmt.Errorf("x: %w", refusal{full}), fault.CodeLimit, "wait"},
		"gRPC, another one's id":           {explain(codes.PermissionDenied, full), fault.CodeUnauthorized, ""},
		"gRPC, too many":                   {explain(grpcCode(full), full), fault.CodeLimit, ""},
		"gRPC, without an id":              {explain(codes.InvalidArgument, full), fault.CodeRequest, ""},
		"the API server of the server":     {status.Error(codes.Unavailable, "x"), "", ""},
		"an error of the reference":        {status.Error(codes.Unknown, "x"), "", ""},
		"what is our own and no refusal":   {fault.New(fault.CodeFrameTooLarge, "x"), "", ""},
		"a connection that does not begin": {errors.New("connection refused"), "", ""},
		"none":                             {nil, "", ""},
	} {
		f := refusedBy(c.err)
		if (f != nil) != (c.want != "") || f != nil && (f.Code != c.want || f.Next != c.next) {
			t.Errorf("%s: %v", name, f)
		}
	}
}
