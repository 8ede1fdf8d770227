// SPDX-License-Identifier: Apache-2.0

// Package request has what all dialers of the library say about a dial, and how they report one that its caller has
// ended. It does not dial.
package request

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

type metadataKey struct{}
type traceKey struct{}
type headerKey struct{}

// WithMetadata adds pairs of metadata to the dials under ctx.
func WithMetadata(ctx context.Context, pairs map[string]string) context.Context {
	return context.WithValue(ctx, metadataKey{}, merged(metadataKey{}, ctx, pairs))
}

// WithHeader adds a header to the dials under ctx, instead of one of the same name.
func WithHeader(ctx context.Context, name, value string) context.Context {
	more := map[string]string{http.CanonicalHeaderKey(name): value}
	return context.WithValue(ctx, headerKey{}, merged(headerKey{}, ctx, more))
}

// WithTrace sets traceparent and tracestate of the dials under ctx.
func WithTrace(ctx context.Context, traceparent, tracestate string) context.Context {
	return context.WithValue(ctx, traceKey{}, [2]string{traceparent, tracestate})
}

func merged(key any, ctx context.Context, more map[string]string) map[string]string {
	all := map[string]string{}
	if before, ok := ctx.Value(key).(map[string]string); ok {
		maps.Copy(all, before)
	}
	maps.Copy(all, more)
	return all
}

// Said is what is said about every dial, unless its context says more.
type Said struct {
	Metadata, Header map[string]string
	Trace            func(context.Context) (traceparent, tracestate string)
}

// Lines calls add for each header line of a dial under ctx, in a stable order.
func (s Said) Lines(ctx context.Context, add func(name, value string)) error {
	var r reqmeta.Metadata
	all := maps.Clone(s.Metadata)
	if more, ok := ctx.Value(metadataKey{}).(map[string]string); ok {
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, more)
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		r.Pairs = append(r.Pairs, reqmeta.Pair{Key: k, Value: all[k]})
	}
	if err := reqmeta.Check(r.Pairs); err != nil {
		return err
	}
	headers := map[string]string{}
	for name, value := range s.Header {
		headers[http.CanonicalHeaderKey(name)] = value
	}
	if more, ok := ctx.Value(headerKey{}).(map[string]string); ok {
		maps.Copy(headers, more)
	}
	if err := checkHeader(headers); err != nil {
		return err
	}
	trace, ok := ctx.Value(traceKey{}).([2]string)
	if !ok && s.Trace != nil {
		trace[0], trace[1] = s.Trace(ctx)
	}
	r.Trace, r.State = reqmeta.Trace([]string{trace[0]}, []string{trace[1]})
	r.Write(add)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		add(name, headers[name])
	}
	return nil
}

// checkHeader takes X- headers alone: others have a meaning for the protocol, or for who is between.
func checkHeader(headers map[string]string) error {
	size := 0
	for name, value := range headers {
		size += len(name) + len(value)
		if rest, ok := strings.CutPrefix(name, "X-"); !ok || !isToken(rest) || strings.HasSuffix(name, "-Bin") {
			return fmt.Errorf("the header %q is not X- with letters, digits and - behind it, or ends in -bin",
				untrusted.Text(name, limit.AuditKey))
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) ||
			strings.TrimSpace(value) != value {
			return fmt.Errorf("the value of the header %s is no printable ASCII, or has blanks around it", name)
		}
	}
	if size > limit.RequestHeader/2 {
		return fmt.Errorf("the headers have %d bytes, at most %d are sent", size, limit.RequestHeader/2)
	}
	return nil
}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-')
	})
}

// CheckTarget keeps anything but host:port out of the request; the hub parses it strictly.
func CheckTarget(address string) error {
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || n == 0 || host == "" || len(address) > limit.AuthorityLength ||
		strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return errors.New("host:port with a port from 1 to 65535 is expected")
	}
	return nil
}

// GaveUp is the fault of a dial whose context, ctx, has ended with the error end.
func GaveUp(ctx context.Context, end error) *fault.Fault {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, end) {
		cause = end
	} else { // the caller's own cause, of any type
		cause = errors.Join(end, cause)
	}
	if errors.Is(end, context.Canceled) {
		return fault.New(fault.CodeDialCanceled, "the caller gave up").Because(cause)
	}
	return fault.New(fault.CodeDialTimeout, "the dial did not end in time").Because(cause)
}
