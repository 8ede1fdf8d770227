// SPDX-License-Identifier: Apache-2.0

package admin_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A disk that is full is not a hub that is away.
func TestDownloadTellsReadingFromWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/short" {
			w.Header().Set("Content-Length", "100")
		}
		w.Write([]byte("backup"))
	}))
	srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	defer srv.Close()
	client := admin.OverSocket(path)

	var got strings.Builder
	if n, err := client.Download(t.Context(), "/whole", &got); n != 6 || err != nil || got.String() != "backup" {
		t.Errorf("%d, %v, %q", n, err, got.String())
	}
	_, err = client.Download(t.Context(), "/whole", fullDisk{})
	if f := (*fault.Fault)(nil); !errors.Is(err, syscall.ENOSPC) || errors.As(err, &f) {
		t.Errorf("a full disk: %v", err)
	}
	if _, err = client.Download(t.Context(), "/short", &got); !fault.Has(err, fault.CodeHubAway) {
		t.Errorf("a transfer that broke off: %v", err)
	}
}
