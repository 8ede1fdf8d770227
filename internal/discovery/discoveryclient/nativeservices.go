// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
)

// nativeFile has the URLs of the services that have spoken the native protocol with this
// node, one in each line.
const nativeFile = "services.native"

// nativeServices knows which services have spoken the native protocol with this node: none of them
// is spoken to in the older one again before an operator permits it (Downgrade). The file
// is read each time, as another process may have changed it.
type nativeServices struct {
	dir string // of the file; empty: this run alone is remembered

	mu  sync.Mutex
	run map[string]bool // what is not on disk
}

// has reports whether a service has spoken it. A file that cannot be read does not say that
// it has not.
func (s *nativeServices) has(url string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read()
	return s.run[url] || err != nil || slices.Contains(all, url)
}

// note remembers that a service has spoken it.
func (s *nativeServices) note(url string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read()
	if err == nil && s.dir != "" {
		if !slices.Contains(all, url) {
			err = writeSpoken(s.dir, append(all, url))
		}
		if err == nil {
			delete(s.run, url)
			return nil
		}
	}
	if s.run == nil {
		s.run = map[string]bool{}
	}
	s.run[url] = true
	return err
}

func (s *nativeServices) read() ([]string, error) {
	if s.dir == "" {
		return nil, nil
	}
	return readSpoken(s.dir)
}

func readSpoken(dir string) ([]string, error) {
	data, err := private.ReadState(filepath.Join(dir, nativeFile), limit.KeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	text, whole := strings.CutSuffix(string(data), "\n")
	all := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	damaged := slices.ContainsFunc(all, func(url string) bool {
		p, err := parsePlace(url)
		return err != nil || p.String() != url
	})
	if err == nil && (!whole || damaged) {
		err = errors.New("it is damaged")
	}
	if err != nil {
		return nil, fault.New(fault.CodeStateAccess, "the list of services that speak the native protocol cannot be read").
			Because(err).
			Hint("see to %s, or remove it: while it cannot be read no service is spoken to in the older protocol "+
				"unless its 'protocol' is sidero", filepath.Join(dir, nativeFile))
	}
	return all, nil
}

// writeSpoken keeps the newest, as many as can be read again.
func writeSpoken(dir string, urls []string) error {
	text := []byte(strings.Join(urls, "\n") + "\n")
	for len(text) > limit.KeyFile {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return writeFile(filepath.Join(dir, nativeFile), text)
}

// Downgrade permits that a service, by its URL or as host:port, is spoken to in the older
// protocol again, and gives its URL. A process that runs takes it over at its next try.
func Downgrade(dir, service string) (string, error) {
	all, err := readSpoken(dir)
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(all, func(url string) bool {
		p, err := parsePlace(service)
		return url == service || err == nil && url == p.String() || strings.HasSuffix(url, "://"+service)
	})
	if at < 0 {
		f := fault.Newf(fault.CodeNotFound, "%.200q has not spoken the native protocol with this node", service).
			Whyf("nothing keeps it from the older one")
		if len(all) > 0 {
			f = f.Whyf("these have: %s", strings.Join(all, ", ")).Hint("name one of them")
		}
		return "", f
	}
	url := all[at]
	return url, writeSpoken(dir, slices.Delete(all, at, at+1))
}
