// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// merging are the sockets of the node's user plane by IPv4 for which the kernel merges datagrams, and all of them.
func merging(t *testing.T) (on, all int) {
	t.Helper()
	for fd := range 1024 {
		at, err := unix.Getsockname(fd)
		if four, ok := at.(*unix.SockaddrInet4); err != nil || !ok || four.Port != gtp.PortUser || four.Addr != nodeAddr[false].As4() {
			continue
		}
		value, err := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO)
		if err != nil {
			t.Fatal(err)
		}
		on, all = on+value, all+1
	}
	return on, all
}

// TestFastPathMergesNothing: the kernel merges G-PDUs for the node's sockets but where programs at tc would see them so.
func TestFastPathMergesNothing(t *testing.T) {
	r := newFastRig(t, "fast_path = \"xdp\"\nworkers = 2", "")
	for _, mode := range []string{"xdp", "tc", "off"} {
		r.reload(t, fmt.Sprintf("fast_path = %q\nworkers = 2", mode), "")
		want := 2
		if mode == "tc" {
			want = 0
		}
		await(t, func() bool { on, all := merging(t); return on == want && all == 2 })
	}
}
