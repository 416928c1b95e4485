// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page on amd64 and arm64 with 4 KiB pages.
const hugePage = 2 << 20

// Memory returns n zero bytes for a large table that is read at random, in huge
// pages where the kernel has them to give: of 4 KiB pages each look-up would miss
// the translation buffer too. The garbage collector owns them like any others.
func Memory(n int) []byte {
	if n < hugePage {
		return make([]byte, n)
	}
	room := make([]byte, n+hugePage)
	start := -uintptr(unsafe.Pointer(&room[0])) & (hugePage - 1)
	table := room[start : start+uintptr(n) : start+uintptr(n)]
	_ = unix.Madvise(table, unix.MADV_HUGEPAGE) // advice: small pages do as well
	return table
}
