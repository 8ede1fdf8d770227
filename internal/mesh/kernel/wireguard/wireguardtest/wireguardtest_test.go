// SPDX-License-Identifier: Apache-2.0

package wireguardtest_test

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard/wireguardtest"
)

func TestTheTwinKeepsTheContract(t *testing.T) {
	wireguardtest.Contract(t, func(*testing.T) wireguardtest.Subject {
		k := wireguardtest.New()
		return k
	})
}
