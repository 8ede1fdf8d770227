// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh"
)

// TestPeersAreCompleted: by the node that runs, whichever way its socket is named.
func TestPeersAreCompleted(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "mesh.sock")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	node := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/status" {
			t.Errorf("%s is asked for", r.URL.Path)
		}
		json.NewEncoder(w).Encode(mesh.Status{Peers: []mesh.Peer{
			{Node: "node-2.example", ID: "2i", State: "direct"},
			{Node: "node-3", ID: "3i", State: "down"},
			{Node: "$(reboot)", ID: "4i", State: "idle"},
		}})
	}))
	node.Listener.Close()
	node.Listener = ln
	node.Start()
	defer node.Close()
	const all, none = "node-2.example\tdirect\nnode-3\tdown\n4i\tidle\n:4\n", ":4\n"
	for _, c := range []struct{ line, env, want string }{
		{"mesh ping ", socket, all},
		{"mesh status ", socket, all},
		{"mesh ping --until-direct --admin-socket " + socket + " ", "", all},
		{"mesh ping --admin-socket " + socket + " ", socket + "x", all}, // a flag counts before the environment
		{"mesh ping node-3 ", socket, none},
		{"mesh ping ", socket + "x", none}, // no node runs there
		{"mesh explain ", socket, none},
	} {
		t.Setenv(meshSocket, c.env)
		if o := tombolo(t, strings.Split("__complete "+c.line, " ")...); o.code != 0 || o.out != c.want {
			t.Errorf("%q with %q: exit %d, %q, want %q", c.line, c.env, o.code, o.out, c.want)
		}
	}
}

func TestWordsThatNoShellReads(t *testing.T) {
	for word, want := range map[string]bool{
		"node-1": true, "a.b_c": true, "A9": true,
		"": false, "-x": false, "a b": false, "a\tb": false, "a\nb": false, "a`b`c": false, "a$b": false, "a;b": false, "näh": false,
	} {
		if got := plainWord(word); got != want {
			t.Errorf("%q: %v, want %v", word, got, want)
		}
	}
}
