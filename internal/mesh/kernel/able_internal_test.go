// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

func TestADeviceThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	for path, hint := range map[string]string{filepath.Join(dir, "none"): "module tun", dir: "CAP_NET_ADMIN"} {
		if f := opens(path); f == nil || f.Code != fault.CodeUnsupported || f.Why == "" || !strings.Contains(f.Next, hint) || !strings.Contains(f.Next, path) {
			t.Errorf("%s: %v", path, f)
		}
	}
	if f := opens("/dev/null"); f != nil {
		t.Errorf("one that can be: %v", f)
	}
}
