// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"
)

// FullDisk calls f while no file of this process can have more than some octets: as if the disk were full then.
func FullDisk(t testing.TB, octets int, f func()) {
	t.Helper()
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	now := was
	now.Cur = uint64(octets)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &now); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}
