// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"errors"
	"sync"
	"sync/atomic"
)

// InParallel calls do with 0 to n-1, by so many workers, and joins the failures.
func InParallel(n, workers int, do func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					errs[w] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
