// SPDX-License-Identifier: Apache-2.0

package trust_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// noon is the time of every test here.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func cluster(t tester, name string) id.Cluster {
	t.Helper()
	c, err := id.ParseCluster(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func aPin() string { return base64.RawURLEncoding.EncodeToString(make([]byte, 32)) }

func TestAJoinLineIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hub := rapid.Custom(func(t *rapid.T) string {
			host := rapid.OneOf(rapid.StringMatching(`[a-z]([a-z0-9-]{0,10}[a-z0-9])?(\.[a-z]{1,5}){0,3}`),
				rapid.Just("10.0.0.1"), rapid.Just("[fd00::1]")).Draw(t, "host")
			return fmt.Sprintf("%s:%d", host, rapid.IntRange(1, 65535).Draw(t, "port"))
		})
		want := trust.Join{
			TokenID: rapid.StringMatching(`[a-z2-7]{8}`).Draw(t, "id"), Secret: rapid.StringMatching(`[a-z2-7]{32}`).Draw(t, "secret"),
			Hubs:    rapid.SliceOfN(hub, 1, 4).Draw(t, "hubs"),
			Cluster: cluster(t, rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?`).Draw(t, "cluster")),
			Pin:     base64.RawURLEncoding.EncodeToString(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "pin")),
		}
		line := want.String()
		if strings.Trim(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/@.,-_[]") != "" {
			t.Fatalf("%q needs quoting in a shell", line)
		}
		got, err := trust.ParseJoin(" " + line + "\n")
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%q was read as %+v, %v", line, got, err)
		}
	})
}

const (
	testID     = "abcdefgh"
	testSecret = "abcdefghijklmnopqrstuvwxyz234567"
)

func TestDamagedJoinLinesAreRefusedAndKeepTheSecret(t *testing.T) {
	good := "tombolo://" + testID + "." + testSecret + "@hub.example:8443/c1/" + aPin()
	if _, err := trust.ParseJoin(good); err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string]string{
		"nothing":                             "",
		"another scheme":                      strings.Replace(good, "tombolo", "https", 1),
		"the scheme in upper case":            strings.Replace(good, "tombolo", "TOMBOLO", 1),
		"no scheme":                           strings.TrimPrefix(good, "tombolo://"),
		"a space within":                      strings.Replace(good, "@", " @", 1),
		"a line end within":                   strings.Replace(good, "/c1", "\n/c1", 1),
		"no token":                            strings.Replace(good, testID+"."+testSecret+"@", "", 1),
		"no secret":                           strings.Replace(good, "."+testSecret, "", 1),
		"a secret that was cut":               strings.Replace(good, testSecret, testSecret[:31], 1),
		"a secret with one more":              strings.Replace(good, testSecret, testSecret+"a", 1),
		"a secret in upper case":              strings.Replace(good, testSecret, strings.ToUpper(testSecret), 1),
		"a secret with a foreign character":   strings.Replace(good, testSecret, testSecret[:31]+"1", 1),
		"a name that is too short":            strings.Replace(good, testID, testID[:7], 1),
		"no hub":                              strings.Replace(good, "hub.example:8443", "", 1),
		"a hub without a port":                strings.Replace(good, ":8443", "", 1),
		"a hub with an empty port":            strings.Replace(good, ":8443", ":", 1),
		"a hub with port 0":                   strings.Replace(good, ":8443", ":0", 1),
		"a hub with a port that is no number": strings.Replace(good, ":8443", ":https", 1),
		"a hub with a name that is none":      strings.Replace(good, "hub.example", "hub$(id)", 1),
		"a hub with a zone":                   strings.Replace(good, "hub.example", "[fe80::1%eth0]", 1),
		"an empty hub among others":           strings.Replace(good, "hub.example:8443", "hub.example:8443,", 1),
		"the secret in place of a hub":        strings.Replace(good, "hub.example", testSecret+"@x", 1),
		"no cluster":                          strings.Replace(good, "/c1/", "/", 1),
		"an empty cluster":                    strings.Replace(good, "/c1/", "//", 1),
		"a cluster with a bad name":           strings.Replace(good, "/c1/", "/C_1/", 1),
		"the secret in place of the cluster":  strings.Replace(good, "/c1/", "/"+testID+"."+testSecret+"/", 1),
		"no pin":                              strings.TrimSuffix(good, "/"+aPin()),
		"an empty pin":                        strings.TrimSuffix(good, aPin()),
		"a pin that was cut":                  good[:len(good)-1],
		"a pin with one more":                 good + "A",
		"a pin with a foreign character":      good[:len(good)-1] + "$",
		"a pin in the other base64":           good[:len(good)-2] + "+A",
		"a pin with bits beyond its end":      good[:len(good)-1] + "B",
		"something behind the pin":            good + "/x",
		"the line twice":                      good + good,
		"the line twice with a space between": good + " " + good,
		"a line in quotes":                    `"` + good + `"`,
		"a line with the program before it":   "tombolo agent --join " + good,
		"the secret in place of the pin":      strings.TrimSuffix(good, aPin()) + testSecret,
		"a line of a million characters":      good + strings.Repeat("x", 1_000_000),
	} {
		t.Run(name, func(t *testing.T) {
			j, err := trust.ParseJoin(line)
			f := fault.From(err)
			if f == nil || f.Code != fault.CodeJoinLine || f.Why == "" || f.Next == "" {
				t.Fatalf("%v with %+v, want %s with why and next", err, j, fault.CodeJoinLine)
			}
			if text := f.Explain(); strings.Contains(strings.ToLower(text), testSecret[:12]) || len(text) > 400 {
				t.Errorf("the error shows too much: %.500s", text)
			}
		})
	}
}

func FuzzParseJoin(f *testing.F) {
	f.Add("tombolo://" + testID + "." + testSecret + "@hub.example:8443,[::1]:1/c1/" + aPin())
	f.Add("tombolo://x.y@z:1/c/d")
	f.Fuzz(func(t *testing.T, line string) {
		j, err := trust.ParseJoin(line)
		if err != nil {
			return
		}
		if j.String() != strings.TrimSpace(line) {
			t.Errorf("%q renders as %q", line, j)
		}
	})
}

func TestTokenUse(t *testing.T) {
	token, secret := trust.NewToken(cluster(t, "c1"), time.Hour, 2, noon())
	if strings.Contains(fmt.Sprintf("%+v", token), secret) || len(secret) != 32 || token.Expires != noon().Add(time.Hour) {
		t.Fatalf("token %+v with secret %q", token, secret)
	}
	use := func(tk trust.Token, secret, key string, now time.Time) (trust.Token, string, error) {
		return tk.Use(secret, key, "new-"+key, now)
	}
	once, first, err := use(token, secret, "a", noon())
	if err != nil || first != "new-a" || len(token.Claims) != 0 || len(once.Claims) != 1 {
		t.Fatalf("first use: %v, %v; the token as it was has %d claims, as it is %d", first, err, len(token.Claims), len(once.Claims))
	}
	twice, _, err := use(once, secret, "b", noon())
	if err != nil || len(once.Claims) != 1 || len(twice.Claims) != 2 {
		t.Fatalf("second use: %v", err)
	}
	none := token
	none.Uses = 0
	for name, c := range map[string]struct {
		token       trust.Token
		secret, key string
		now         time.Time
		code        fault.Code
	}{
		"a wrong secret":                         {token, "wrong", "c", noon(), fault.CodeTokenUnknown},
		"no secret":                              {token, "", "c", noon(), fault.CodeTokenUnknown},
		"the hash in place of the secret":        {token, token.SecretHash, "c", noon(), fault.CodeTokenUnknown},
		"a wrong secret of a token that ran out": {token, "wrong", "c", noon().Add(2 * time.Hour), fault.CodeTokenUnknown},
		"the instant of its end":                 {token, secret, "c", noon().Add(time.Hour), fault.CodeTokenExpired},
		"the same key after the end":             {once, secret, "a", noon().Add(time.Hour), fault.CodeTokenExpired},
		"a third key on two uses":                {twice, secret, "c", noon(), fault.CodeTokenUsed},
		"a token without uses":                   {none, secret, "c", noon(), fault.CodeTokenUsed},
	} {
		t.Run(name, func(t *testing.T) {
			after, _, err := use(c.token, c.secret, c.key, c.now)
			f := fault.From(err)
			if f == nil || f.Code != c.code || len(after.Claims) != len(c.token.Claims) {
				t.Errorf("%v, want %s", err, c.code)
			}
			// Only who has the secret is told what the token was for.
			known := f != nil && f.Code != fault.CodeInternal && f.Code != fault.CodeTokenUnknown
			if f != nil && strings.Contains(f.Next, "--cluster c1") != known {
				t.Errorf("the next step is %q", f.Next)
			}
			if f != nil && strings.Contains(f.Explain(), secret) {
				t.Error("the error shows the secret")
			}
		})
	}
	t.Run("the instant before its end", func(t *testing.T) {
		if _, _, err := use(token, secret, "c", noon().Add(time.Hour-1)); err != nil {
			t.Error(err)
		}
	})
	t.Run("the same key gets the same name again, also when all uses are taken", func(t *testing.T) {
		after, again, err := twice.Use(secret, "a", "another", noon().Add(time.Minute))
		if err != nil || again != first || len(after.Claims) != 2 {
			t.Errorf("%v, %v, %d claims", again, err, len(after.Claims))
		}
	})
}

func TestDrawnTextsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 200 {
		token, secret := trust.NewToken(cluster(t, "c1"), time.Hour, 1, noon())
		agent, err := trust.NewAgentName()
		if err != nil {
			t.Fatal(err)
		}
		line := trust.Join{TokenID: token.ID, Secret: secret, Hubs: []string{"h:1"}, Cluster: cluster(t, "c1"), Pin: aPin()}.String()
		if _, err := trust.ParseJoin(line); err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{token.ID, secret, agent.String()} {
			if seen[s] {
				t.Fatalf("%q was drawn twice", s)
			}
			seen[s] = true
		}
	}
}
