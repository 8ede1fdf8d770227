// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/test/lab"
)

// espKeys are keys of IPsec with their salts, by SPI.
type espKeys map[uint32][]byte

func (k espKeys) add(more espKeys) { maps.Copy(k, more) }

// keys are those that the kernels of all nodes have: nothing but root in there can see them.
func (r *linkedRig) keys() espKeys {
	r.t.Helper()
	out := espKeys{}
	for _, n := range r.all() {
		all, err := lab.SAs(n.host)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, s := range all {
			if s.Link != 0 {
				out[s.SPI] = s.Key
			}
		}
	}
	return out
}

// observed has somebody search all that was on the cables, all objects, logs, files of nodes and command lines for keys
// of IPsec, and for the nodes' own ones. With a key he could decrypt, and would find it where it is.
func (r *linkedRig) observed(t *testing.T, keys espKeys) {
	secrets := map[string][]byte{}
	for spi, key := range keys {
		if len(key) != 36 {
			t.Fatalf("the state %#x has a key of %d bytes", spi, len(key))
		}
		secrets[fmt.Sprintf("the key of %#x", spi)] = bytes.Clone(key[:32]) // with no room behind it, which is the salt's
	}
	for _, n := range r.all() {
		text, err := os.ReadFile(filepath.Join(n.dir, "state", "ipsec.key"))
		key, errKey := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
		if err = errors.Join(err, errKey); err != nil || len(key) < 32 {
			t.Fatalf("%s has a key of %d bytes: %v", n.name, len(key), err)
		}
		secrets["the key of the certificate of "+n.name] = bytes.Clone(key[:32])
	}
	search := newSearch(secrets)
	for what, key := range secrets { // each is found where it is, in each spelling, and what is not there is not
		for i, text := range spellings(key) {
			if got := search.in(append([]byte("psk: "), append(text, '!')...)); got != what {
				t.Errorf("%s in spelling %d is found as %q", what, i, got)
			}
		}
	}
	size, decrypted, decryptedByOthers := 0, 0, 0
	look := func(where string, data []byte) {
		size += len(data)
		if what := search.in(data); what != "" {
			t.Errorf("%s is in %s", what, where)
		}
	}
	r.toBeSeen(look)
	for _, n := range r.all() {
		if _, err := n.wire.Count(func(frame []byte) bool {
			look("a packet at "+n.name, frame)
			spi, plain := lab.OpenESP(frame, keys)
			if bytes.Contains(plain, []byte(marker)) {
				decrypted++
				other := bytes.Clone(keys[spi])
				other[0] ^= 1
				if _, plain := lab.OpenESP(frame, map[uint32][]byte{spi: other}); plain != nil {
					decryptedByOthers++
				}
			}
			return false
		}); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d keys are not in %d bytes; with them %d packets are decrypted", len(secrets), size, decrypted)
	if decrypted == 0 || decryptedByOthers > 0 {
		t.Errorf("with the kernels' keys %d packets are decrypted, with others %d", decrypted, decryptedByOthers)
	}
}

// toBeSeen are objects, logs, files of nodes but for the keys of their certificates, and what programs were started with.
func (r *linkedRig) toBeSeen(look func(where string, data []byte)) {
	r.t.Helper()
	read := func(path string) {
		data, err := os.ReadFile(path)
		if err != nil {
			r.t.Error(err)
		}
		look(path, data)
	}
	for _, c := range r.linked {
		for _, kind := range []string{kubetest.Members, kubetest.Clusters, kubetest.ClusterNodes, kubetest.NodeConfigs} {
			for _, o := range r.linked {
				names := []string{o.name}
				for _, n := range o.nodes {
					names = append(names, n.host.Name(), o.name+"."+n.host.Name())
				}
				for _, name := range names {
					text, err := json.Marshal(c.api.Object(kind, name))
					if err != nil {
						r.t.Error(err)
					}
					look(c.name+" "+kind+" "+name, text)
				}
			}
		}
	}
	for _, n := range r.all() {
		read(n.log)
		for _, file := range []string{"cmdline", "environ"} {
			read(fmt.Sprintf("/proc/%d/%s", n.process.Pid(), file))
		}
		for _, words := range [][]string{{"status", "--candidates"}, {"status", "-o", "json"}} {
			text, err := n.verb(words...)
			if err != nil {
				r.t.Error(err)
			}
			look("the status of "+n.name, []byte(text))
		}
		err := filepath.WalkDir(n.dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && d.Name() != "ipsec.key" {
				read(path)
			}
			return err
		})
		if err != nil {
			r.t.Error(err)
		}
	}
}

// spellings are how a key may stand in a text: its bytes, and hexadecimal and base64, also within more of it.
func spellings(key []byte) [][]byte {
	out := [][]byte{key, []byte(hex.EncodeToString(key)), []byte(strings.ToUpper(hex.EncodeToString(key)))}
	for before := range 3 {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := enc.EncodeToString(append(make([]byte, before), key...))
			whole := (before + len(key)) * 8 / 6 // characters that nothing behind changes
			out = append(out, []byte(text[(before*8+5)/6:whole]))
		}
	}
	return out
}

// search finds secrets in data in one go.
type search struct {
	first [1 << 16]bool
	begin map[[8]byte][]spelled
}

type spelled struct {
	what string
	text []byte
}

func newSearch(secrets map[string][]byte) *search {
	s := &search{begin: map[[8]byte][]spelled{}}
	for what, key := range secrets {
		for _, text := range spellings(key) {
			s.first[uint16(text[0])<<8|uint16(text[1])] = true
			s.begin[[8]byte(text)] = append(s.begin[[8]byte(text)], spelled{what, text})
		}
	}
	return s
}

// in is the first secret that is in data; empty: there is none.
func (s *search) in(data []byte) string {
	for i := 0; i+8 <= len(data); i++ {
		if !s.first[uint16(data[i])<<8|uint16(data[i+1])] {
			continue
		}
		for _, x := range s.begin[[8]byte(data[i:])] {
			if bytes.HasPrefix(data[i:], x.text) {
				return x.what
			}
		}
	}
	return ""
}
