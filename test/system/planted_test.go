// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"crypto"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// Every hub and agent of these tests hands over what it wrote, and tells of the
// secrets that it had; the suite looks for the ones in the others.

func plant(t *testing.T, what, value string) {
	t.Helper()
	if err := runtest.Plant(what, value); err != nil {
		t.Error(err)
	}
}

func plantKey(t *testing.T, what string, key crypto.PrivateKey) {
	t.Helper()
	text, err := trust.EncodeKey(key)
	if err != nil {
		t.Error(err)
	}
	plant(t, what, string(text))
}

func plantJoin(t *testing.T, line string) {
	t.Helper()
	j, err := trust.ParseJoin(line)
	if err != nil {
		t.Error(err)
		return
	}
	plant(t, "the secret of a join token", j.Secret)
}

// plantSession tells of the secret that ties connections to a session; logs could
// have its bytes, or the digits of %x.
func plantSession(t *testing.T, secret []byte) {
	t.Helper()
	plant(t, "the secret of a session, in digits", hex.EncodeToString(secret))
}

func wrote(t *testing.T, where, text string) {
	t.Helper()
	if err := runtest.Wrote(where, text); err != nil {
		t.Error(err)
	}
}

func wroteAnswer(t *testing.T, what string, answer any) {
	t.Helper()
	text, err := json.Marshal(answer)
	if err != nil {
		t.Error(err)
	}
	wrote(t, "the answer to "+what+" in "+t.Name(), string(text))
}

// handOver gives the log, the metrics and the audit files of a process that has ended.
func handOver(t *testing.T, who string, log *journal, reg *prometheus.Registry, auditFile string) {
	t.Helper()
	wrote(t, "the log of the "+who+" in "+t.Name(), log.String())
	var text bytes.Buffer
	families, err := reg.Gather()
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Error(err)
		}
	}
	if err != nil {
		t.Error(err)
	}
	wrote(t, "the metrics of the "+who+" in "+t.Name(), text.String())
	if auditFile == "" || auditFile == "-" {
		return
	}
	files, err := filepath.Glob(auditFile + "*")
	if err != nil {
		t.Error(err)
	}
	for _, f := range files {
		if err := runtest.WroteFile("the audit file of the "+who+" in "+t.Name(), f); err != nil {
			t.Error(err)
		}
	}
}

// handOver does so for a hub that has ended, and tells of its CA's key.
func (h *testHub) handOver() {
	h.t.Helper()
	handOver(h.t, "hub", h.log, h.reg, h.cfg.Audit.Path)
	if os.Getenv(runtest.PlantedFolder) == "" {
		return
	}
	s, err := state.Open(h.cfg.StateDir)
	if err != nil {
		return // another hub has it by now, or a test has damaged it
	}
	defer s.Close()
	ca, err := s.Authority(h.cfg.TrustDomain, time.Now())
	if err != nil {
		return
	}
	key, err := ca.KeyPEM()
	if err != nil {
		h.t.Error(err)
		return
	}
	plant(h.t, "the key of a hub's CA", string(key))
}

// plantAgent tells of the key in an agent's folder, if it has joined.
func plantAgent(t *testing.T, dir string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "identity.json"))
	var me struct{ Key string }
	if err == nil && json.Unmarshal(data, &me) == nil && strings.Contains(me.Key, "-----BEGIN") {
		plant(t, "the key of an agent", me.Key)
	}
}
