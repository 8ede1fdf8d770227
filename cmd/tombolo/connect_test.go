// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func TestWhatConnectMaySay(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r, err := requestMetadata([]string{"ticket=OPS-1", "note=a=b c"}, parent)
	if want := []reqmeta.Pair{{Key: "ticket", Value: "OPS-1"}, {Key: "note", Value: "a=b c"}}; err != nil || r.Trace != parent || !slices.Equal(r.Pairs, want) {
		t.Errorf("%+v, %v", r, err)
	}
	for name, c := range map[string]struct {
		metadata []string
		trace    string
	}{
		"no =":             {[]string{"ticket"}, ""},
		"a blank":          {[]string{"a b=c"}, ""},
		"twice":            {[]string{"a=b", "a=c"}, ""},
		"an escape":        {[]string{"a=\x1b[31m"}, ""},
		"another trace":    {nil, "0af7651916cd43dd8448eb211c80319c"},
		"upper case trace": {nil, strings.ToUpper(parent)},
	} {
		if _, err := requestMetadata(c.metadata, c.trace); !fault.Has(err, fault.CodeUsage) || fault.From(err).Next == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestConnectThatIsGivenUp: a hub that gives no answer is not said to be away when it was
// the user who ended the wait.
func TestConnectThatIsGivenUp(t *testing.T) {
	at := filepath.Join(runtest.Dir(t), "hub.sock")
	ln, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ln.(*net.UnixListener).SetDeadline(time.Now().Add(runtest.Patience))
	p := startProcess(t, "connect", "c1", "a:1", "--admin-socket", at)
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
		t.Fatal(err)
	}
	p.Process.Signal(syscall.SIGTERM)
	if code, text := p.Exit(t), p.Err.String(); code != 3 || !strings.Contains(text, "dial_canceled") || strings.Contains(text, "hub_unreachable") {
		t.Errorf("exit %d:\n%s", code, text)
	}
}
