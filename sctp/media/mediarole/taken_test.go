// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sctp"
)

// TestTaken: a server whose port another one has names the key that is to be changed, and none that the section does not have.
func TestTaken(t *testing.T) {
	w := newWorld(t)
	w.serve("name = \"udp\"\n")
	w.serve("name = \"raw\"\nencapsulation = \"none\"\n")
	for _, tt := range []struct{ lines, want string }{
		{"port = 5001\n", "choose another udp_port"},
		{"port = 5001\nlisten = [\"2001:db8:1::b\"]\n", "choose another udp_port"},
		{"encapsulation = \"none\"\nudp_port = 9900\n", "choose another port"},
		{"encapsulation = \"none\"\nlisten = [\"2001:db8:1::b\"]\n", "choose another port"},
	} {
		second, err := New(*w.settings(tt.lines), discard)
		if err != nil {
			t.Fatal(err)
		}
		w.server.Do(t, func() error { err = second.Run(t.Context()); return nil })
		if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%q: the error is %v", tt.lines, err)
		}
	}
}

// TestKernelIsThere names the key by which a server leaves the kernel its protocol.
func TestKernelIsThere(t *testing.T) {
	w := &world{t: t, root: t.TempDir()}
	err := w.settings("encapsulation = \"none\"\n").explain(fmt.Errorf("listen: %w", sctp.ErrKernel))
	if !strings.Contains(err.Error(), `write encapsulation = "udp"`) || strings.Contains(err.Error(), "Config") {
		t.Errorf("the error is %v", err)
	}
}
