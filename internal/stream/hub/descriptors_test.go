// SPDX-License-Identifier: Apache-2.0

package hub

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
		means
		want int
	}{
		"a large machine has the most there are":     {means{configured: 4, cores: 64, used: 100, most: 1 << 20}, limit.Connections},
		"two cores have use for four":                {means{configured: 4, cores: 2, used: 100, most: 1 << 20}, 4},
		"one core has use for two":                   {means{configured: 4, cores: 1, used: 100, most: 1 << 20}, 2},
		"the configuration says fewer":               {means{configured: 3, cores: 8, used: 100, most: 1 << 20}, 3},
		"the configuration says one":                 {means{configured: 1, cores: 8, used: 100, most: 1 << 20}, 1},
		"half of the descriptors in use":             {means{configured: 4, cores: 8, used: 512, most: 1024}, 4},
		"more than half of the descriptors in use":   {means{configured: 4, cores: 8, used: 513, most: 1024}, 1},
		"all of the descriptors in use":              {means{configured: 4, cores: 8, used: 1024, most: 1024}, 1},
		"no bound of descriptors":                    {means{configured: 4, cores: 8, used: 1 << 30, most: math.MaxInt}, 4},
		"nothing is known: there is always one":      {means{}, 1},
		"descriptors that cannot be counted are all": {means{configured: 4, cores: 8, used: 1024, most: 1024}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := connections(c.means); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

func TestDescriptorsAreCountedNowAndThen(t *testing.T) {
	listed, fails := 0, false
	d := &descriptors{most: 1000, list: func() (int, error) {
		listed++
		if fails {
			return 0, errors.New("no /proc")
		}
		return 100, nil
	}}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range 50 {
		if got, _ := d.used(now.Add(time.Duration(i) * time.Millisecond)); got != 100+i {
			t.Errorf("asked the %dth time: %d", i, got)
		}
	}
	if listed != 1 {
		t.Errorf("the list was read %d times within a moment", listed)
	}
	if got, _ := d.used(now.Add(limit.DescriptorsCounted)); got != 100 || listed != 2 {
		t.Errorf("later: %d, read %d times", got, listed)
	}
	fails = true
	for i := range 3 {
		if got, most := d.used(now.Add(time.Hour + time.Duration(i))); got != most {
			t.Errorf("what cannot be counted: %d", got)
		}
	}
}

func TestDescriptorsOfThisProcess(t *testing.T) {
	d := newDescriptors()
	before, most := d.used(time.Now())
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
	if after, _ := d.used(time.Now().Add(2 * limit.DescriptorsCounted)); after < before+len(open)-5 {
		t.Errorf("%d before, %d after 20 files were opened", before, after)
	}
}
