// SPDX-License-Identifier: Apache-2.0

package conns

import (
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func TestConnectionsOfASession(t *testing.T) {
	for name, c := range map[string]struct {
		Means
		want int
	}{
		"a large machine has the most there are":     {Means{Configured: 4, Cores: 64, Used: 100, Most: 1 << 20}, limit.Connections},
		"two cores have use for four":                {Means{Configured: 4, Cores: 2, Used: 100, Most: 1 << 20}, 4},
		"one core has use for two":                   {Means{Configured: 4, Cores: 1, Used: 100, Most: 1 << 20}, 2},
		"the configuration says fewer":               {Means{Configured: 3, Cores: 8, Used: 100, Most: 1 << 20}, 3},
		"the configuration says one":                 {Means{Configured: 1, Cores: 8, Used: 100, Most: 1 << 20}, 1},
		"half of the descriptors in use":             {Means{Configured: 4, Cores: 8, Used: 512, Most: 1024}, 4},
		"more than half of the descriptors in use":   {Means{Configured: 4, Cores: 8, Used: 513, Most: 1024}, 1},
		"all of the descriptors in use":              {Means{Configured: 4, Cores: 8, Used: 1024, Most: 1024}, 1},
		"no bound of descriptors":                    {Means{Configured: 4, Cores: 8, Used: 1 << 30, Most: math.MaxInt}, 4},
		"nothing is known: there is always one":      {Means{}, 1},
		"descriptors that cannot be counted are all": {Means{Configured: 4, Cores: 8, Used: 1024, Most: 1024}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := PerSession(c.Means); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

func TestDescriptorsAreCountedNowAndThen(t *testing.T) {
	listed, fails := 0, false
	d := &Descriptors{most: 1000, list: func() (int, error) {
		listed++
		if fails {
			return 0, errors.New("no /proc")
		}
		return 100, nil
	}}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range 50 {
		if got, _ := d.Used(now.Add(time.Duration(i) * time.Millisecond)); got != 100+i {
			t.Errorf("asked the %dth time: %d", i, got)
		}
	}
	if listed != 1 {
		t.Errorf("the list was read %d times within a moment", listed)
	}
	if got, _ := d.Used(now.Add(descriptorsCounted)); got != 100 || listed != 2 {
		t.Errorf("later: %d, read %d times", got, listed)
	}
	fails = true
	for i := range 3 {
		if got, most := d.Used(now.Add(time.Hour + time.Duration(i))); got != most {
			t.Errorf("what cannot be counted: %d", got)
		}
	}
}

func TestDescriptorsOfThisProcess(t *testing.T) {
	d := NewDescriptors()
	before, most := d.Used(time.Now())
	if before < 3 || most < before {
		t.Fatalf("%d of %d", before, most)
	}
	var open []*os.File
	for range 20 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		open = append(open, f)
	}
	if after, _ := d.Used(time.Now().Add(2 * descriptorsCounted)); after < before+len(open)-5 {
		t.Errorf("%d before, %d after 20 files were opened", before, after)
	}
}
