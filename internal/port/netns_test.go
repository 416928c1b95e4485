// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// inNamespace runs the rest of the test on a thread in a fresh network
// namespace with loopback up. The thread is never unlocked, so the namespace
// ends with the test's goroutine and what it opened.
func inNamespace(t testing.TB) *Host {
	t.Helper()
	testutil.NeedRoot(t)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	h, err := OpenHost()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := h.SetUp("lo"); err != nil {
		t.Fatal(err)
	}
	return h
}
