// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// jwt is a token with these claims.
func jwt(claims string) string {
	return "h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".s"
}

func TestExpiry(t *testing.T) {
	for token, want := range map[string]int64{
		jwt(`{"exp":1767225600,"sub":"x"}`): 1767225600,
		jwt(`{"exp":1767225600.75}`):        1767225600,
		jwt(`{"exp":1.7672256e9}`):          1767225600,
		jwt(`{"sub":"x"}`):                  0,
		jwt(`{"exp":null}`):                 0,
		jwt(`{"exp":"1767225600"}`):         0,
		jwt(`{"exp":-1}`):                   0,
		jwt(`{"exp":1e300}`):                0,
		jwt(`{"exp":1e999}`):                0,
		jwt(`[1767225600]`):                 0,
		jwt(`{"exp":1767225600`):            0,
		jwt(`{"exp":1767225600}`) + ".more": 0,
		"h.!.s":                             0,
		"opaque":                            0,
		"":                                  0,
		jwt(`{"exp":1767225600}` + strings.Repeat(" ", mostClaims)): 0,
	} {
		got := expiry(token)
		if want == 0 && !got.IsZero() || want != 0 && got.Unix() != want {
			t.Errorf("%.60q ends at %v, not %d", token, got, want)
		}
	}
}

// FuzzExpiry: whatever a token is, its end is within the calendar, or there is none.
func FuzzExpiry(f *testing.F) {
	for _, token := range []string{jwt(`{"exp":1767225600}`), jwt(`{"exp":1e18}`), jwt(`{}`), "a.b.c", "...."} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		got := expiry(token)
		if !got.IsZero() && (got.Unix() < 1 || got.UTC().Year() > 9999) {
			t.Errorf("%q ends at %v", token, got)
		}
		if !got.IsZero() && strings.Count(token, ".") != 2 {
			t.Errorf("%q is a token", token)
		}
	})
}

func TestNextReview(t *testing.T) {
	now := time.Unix(1_767_225_600, 0)
	const every = 4 * time.Minute
	for name, c := range map[string]struct {
		ends   time.Time
		last   outcome
		random float64
		want   time.Duration // 0: never
	}{
		"the soonest":                       {time.Time{}, good, 0, every},
		"the latest":                        {time.Time{}, good, math.Nextafter(1, 0), every + every/2 - 1},
		"the API server was away":           {time.Time{}, failed, 0.5, every + every/4},
		"it was refused":                    {time.Time{}, refused, 0.9, 30 * time.Second},
		"well before its end":               {now.Add(time.Hour), good, 0, every},
		"just before its end":               {now.Add(every + reviewMargin + 1), good, 0, every},
		"so shortly before that clocks say": {now.Add(every + reviewMargin), good, 0, 0},
		"refused at its end":                {now.Add(30*time.Second + reviewMargin), refused, 0, 0},
		"after its end":                     {now.Add(-time.Hour), good, 0, 0},
	} {
		got, ok := nextReview(now, c.ends, c.last, every, c.random)
		if ok != (c.want != 0) || ok && got != c.want {
			t.Errorf("%s: %v %v, not %v", name, got, ok, c.want)
		}
	}
}

// answers are what an API server says one after the other, and the last for ever.
type answers struct {
	of     []any // error, or the name of the user
	at     []time.Time
	counts map[outcome]int
	slow   time.Duration
}

func (a *answers) review(ctx context.Context, _ string) (kube.Review, error) {
	a.at = append(a.at, time.Now())
	run.Wait(ctx, a.slow)
	next := a.of[0]
	if len(a.of) > 1 {
		a.of = a.of[1:]
	}
	if err, ok := next.(error); ok {
		return kube.Review{}, err
	}
	return kube.Review{User: next.(string)}, nil
}

func (a *answers) reviewer() *reviewer {
	a.counts = map[outcome]int{}
	return &reviewer{want: "agent", review: a.review, count: func(o outcome) { a.counts[o]++ }, every: reviewEvery,
		asking: run.NewLimiter(1), again: run.NewLimiter(1), known: map[[sha256.Size]byte]judged{}}
}

// TestWatch has an API server judge the token of a connected agent for some hours.
func TestWatch(t *testing.T) {
	no := fault.New(fault.CodeUnauthorized, "the token is not valid")
	away := fault.New(fault.CodeKubeAway, "it is away")
	for name, c := range map[string]struct {
		of          []any
		lives       time.Duration // the token; 0: for ever
		slow        time.Duration
		over        bool // the agent is let go
		least, most int  // reviews within 2 hours
		counts      []outcome
	}{
		"good":                       {[]any{"agent"}, 0, 0, false, 20, 30, []outcome{good}},
		"good until its end":         {[]any{"agent"}, time.Hour, 0, false, 9, 14, []outcome{good}},
		"refused after its end only": {[]any{no}, 3 * time.Minute, 0, false, 0, 0, nil},
		"refused when it ends":       {[]any{no}, 9 * time.Minute, 10 * time.Minute, false, 1, 1, nil},
		"its pod is deleted":         {[]any{"agent", "agent", no}, time.Hour, 0, true, 6, 6, []outcome{good, refused}},
		"without an end, deleted":    {[]any{"agent", no}, 0, 0, true, 5, 5, []outcome{good, refused}},
		"another one's":              {[]any{"other"}, 0, 0, true, 4, 4, []outcome{refused}},
		"refused three times":        {[]any{no, no, no, "agent"}, 0, 0, false, 20, 33, []outcome{good, refused}},
		"refused once":               {[]any{no, "agent"}, 0, 0, false, 20, 31, []outcome{good, refused}},
		"refused, then away":         {[]any{no, away, no, away, "agent"}, 0, 0, false, 20, 32, []outcome{good, refused, failed}},
		"away":                       {[]any{away}, 0, 0, false, 20, 30, []outcome{failed}},
		"an error without a code":    {[]any{errors.New("500")}, 0, 0, false, 20, 30, []outcome{failed}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &answers{of: c.of, slow: c.slow}
				r, token := api.reviewer(), "opaque"
				if c.lives != 0 {
					token = jwt(fmt.Sprintf(`{"exp":%d}`, time.Now().Add(c.lives).Unix()))
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				err := r.watch(ctx, token)
				if (err != nil) != c.over || err != nil && !fault.Has(err, fault.CodeUnauthorized) {
					t.Errorf("the agent is let go: %v", err)
				}
				if n := len(api.at); n < c.least || n > c.most {
					t.Errorf("%d reviews were made, not %d to %d", n, c.least, c.most)
				}
				for _, o := range []outcome{good, refused, failed} {
					if (api.counts[o] > 0) != slices.Contains(c.counts, o) {
						t.Errorf("%d were %s", api.counts[o], o)
					}
				}
			})
		})
	}
}

// TestWatchForgets: a token that was refused is not taken from another agent because it was good a moment ago.
func TestWatchForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &answers{of: []any{"agent", fault.New(fault.CodeUnauthorized, "the token is not valid")}}
		r := api.reviewer()
		r.every = reviewed / 4
		if _, err := r.authorize(t.Context(), "opaque"); err != nil {
			t.Fatal(err)
		}
		if err := r.watch(t.Context(), "opaque"); err == nil {
			t.Error("the agent is not let go")
		}
		if _, err := r.authorize(t.Context(), "opaque"); !fault.Has(err, fault.CodeUnauthorized) {
			t.Errorf("it is taken: %v", err)
		}
	})
}

// TestWatchesAreBounded asks about one token at a time, and an agent that leaves meanwhile waits for nobody.
func TestWatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &answers{of: []any{"agent"}, slow: time.Hour}
		r := api.reviewer()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 10)
		for range cap(ended) {
			go func() { ended <- r.watch(ctx, "opaque") }()
		}
		time.Sleep(2 * r.every)
		synctest.Wait()
		if len(api.at) != 1 {
			t.Errorf("%d reviews are under way", len(api.at))
		}
		cancel()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
