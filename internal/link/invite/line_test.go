// SPDX-License-Identifier: Apache-2.0

package invite_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/invite"
)

func certificate(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func line(t testing.TB) invite.Line {
	return invite.Line{Cluster: "west", Server: "https://host.example:6443", ServerName: "kubernetes", Proxy: "socks5://p:1080",
		CA: append(certificate(t), certificate(t)...), Token: strings.Repeat("eyJ.", 200),
		Expires: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func TestALineIsReadAsItWasWritten(t *testing.T) {
	want := line(t)
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 3<<10 {
		t.Errorf("it has %d bytes", len(text))
	}
	for _, as := range []string{text, " " + text + "\n", text[:100] + "\n" + text[100:]} {
		got, err := invite.ParseLine(as)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v, %#v", err, got)
		}
	}
	if shown := fmt.Sprint(want); strings.Contains(shown, "eyJ") {
		t.Error("it is shown: " + shown)
	}
}

func TestADamagedLineIsRefused(t *testing.T) {
	text, err := line(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	other := "A"
	if text[200] == 'A' {
		other = "B"
	}
	for name, bad := range map[string]string{
		"empty": "", "cut": text[:len(text)-8], "changed": text[:200] + other + text[201:], "longer": text + "AAAA",
		"another scheme": "tombolo://" + text, "another version": strings.Replace(text, "/v1/", "/v2/", 1),
		"too long": text + strings.Repeat("A", invite.MostLine),
	} {
		_, err := invite.ParseLine(bad)
		if !fault.Has(err, fault.CodeJoinLine) || strings.Contains(err.Error(), "eyJ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatMakesNoLine(t *testing.T) {
	for name, change := range map[string]func(*invite.Line){
		"no cluster": func(l *invite.Line) { l.Cluster = "West.x" }, "no https": func(l *invite.Line) { l.Server = "http://a" },
		"a proxy": func(l *invite.Line) { l.Proxy = "ftp://a" }, "no token": func(l *invite.Line) { l.Token = "" },
		"no PEM": func(l *invite.Line) { l.CA = []byte("x") }, "white space": func(l *invite.Line) { l.Token = "a b" },
		"credentials":  func(l *invite.Line) { l.Server = "https://a:b@c" },
		"too many CAs": func(l *invite.Line) { l.CA = []byte(strings.Repeat(string(l.CA), 40)) },
	} {
		l := line(t)
		change(&l)
		if _, err := l.Encode(); !fault.Has(err, fault.CodeConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	text, err := line(f).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	bare := invite.Line{Cluster: "c", Server: "https://a", Token: "t", Expires: time.Unix(0, 0).UTC()}
	if text, err = bare.Encode(); err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := invite.ParseLine(text)
		if err != nil {
			return
		}
		again, err := l.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if same, err := invite.ParseLine(again); err != nil || !reflect.DeepEqual(same, l) {
			t.Fatalf("%v, %#v", err, same)
		}
		if _, err := l.Kubeconfig(l.Token); err != nil {
			t.Fatal(err)
		}
	})
}
