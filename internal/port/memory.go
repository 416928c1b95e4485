// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page on machines with pages of 4 KiB.
const hugePage = 2 << 20

// madvPopulateWrite is MADV_POPULATE_WRITE of <linux/mman.h>, since Linux 5.14.
const madvPopulateWrite = 23

// Memory maps n zero bytes for a large table that is read at random, apart from
// the Go heap, whose collector would let as much garbage lie beside it. They are
// in huge pages where the kernel has them, since with small ones each look-up
// would miss the translation buffer too; and they are there at once, since to
// clear a huge page at the first touch takes longer than a packet may wait. Call
// free when nothing refers to the bytes any more.
func Memory(n int) (table []byte, free func(), err error) {
	align := os.Getpagesize()
	if n >= hugePage {
		align = hugePage
	}
	room, err := unix.Mmap(-1, 0, n+align, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot get %d MiB of memory: %w", n>>20, err)
	}
	start := -uintptr(unsafe.Pointer(&room[0])) & uintptr(align-1)
	table = room[start : start+uintptr(n) : start+uintptr(n)]
	// Both are advice: without, the table is slower at times.
	if n >= hugePage {
		_ = unix.Madvise(table, unix.MADV_HUGEPAGE)
	}
	_ = unix.Madvise(table, madvPopulateWrite)
	return table, func() { _ = unix.Munmap(room) }, nil
}
