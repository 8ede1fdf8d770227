// SPDX-License-Identifier: Apache-2.0

//go:build counts

package carrier_test

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/stream/carrier/carriertest"
)

// TestMuxInFull plays the cases that go by numbers, with all of them.
func TestMuxInFull(t *testing.T) {
	t.Run("pipe", func(t *testing.T) { carriertest.RunInFull(t, pipes) })
	t.Run("tls", func(t *testing.T) { carriertest.RunInFull(t, overTLS(1)) })
	t.Run("tls, 2 connections", func(t *testing.T) { carriertest.RunInFull(t, overTLS(2)) })
	t.Run("tls, 4 connections", func(t *testing.T) { carriertest.RunInFull(t, overTLS(4)) })
	t.Run("lanes", func(t *testing.T) { carriertest.RunLanes(t, lanes, true) })
}
